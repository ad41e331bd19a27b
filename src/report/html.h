#pragma once
#include <filesystem>
#include <string>

namespace kaon {

struct DebugReport;

/// One page that needs nothing else: no network, no file beside it. Charts by Chart.js, inlined.
void write_html(const DebugReport& report, const std::filesystem::path& path);

/// The doctor's page, likewise. `data`: what page/doctor.js reads, as JSON that may stand inside a <script> element.
void write_doctor_html(const std::string& data, const std::filesystem::path& path);

}  // namespace kaon
