#pragma once
#include <string>

#include "debug/debug_report.h"

namespace kaon {

/// What page/page.js reads, as JSON that may stand inside a <script> element. Histograms and channels are thinned to
/// what a chart can show.
std::string page_data(const DebugReport& report);

}  // namespace kaon
