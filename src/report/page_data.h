#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "debug/debug_report.h"

namespace kaon {

/// What page/page.js reads, as JSON that may stand inside a <script> element. Histograms and channels are thinned to
/// what a chart can show.
std::string page_data(const DebugReport& report);
/// One quantizer of it.
nlohmann::json quantizer_data(const QuantizerDebug& quantizer);

/// JSON as text that may stand inside a <script> element: "</script>" or "<!--" in a name must not end it.
std::string script_text(const nlohmann::json& data);

}  // namespace kaon
