#pragma once
#include <filesystem>

namespace kaon {

struct DebugReport;

/// One page that needs nothing else: no network, no file beside it. Charts by Chart.js, inlined.
void write_html(const DebugReport& report, const std::filesystem::path& path);

}  // namespace kaon
