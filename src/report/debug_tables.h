#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "debug/debug_report.h"

namespace kaon {

/// summary.json.
nlohmann::ordered_json to_json(const DebugReport& report);

/// The row's keys of summary.json.
nlohmann::ordered_json row_json(const DebugReport& report, const DebugRow& row);

/// A weight's <layer>.weight_stats.json.
nlohmann::ordered_json weight_stats_json(const DebugReport& report, const DebugRow& row);

/// summary.csv: the same rows and keys as summary.json, lists shortened to their range.
std::string to_csv(const DebugReport& report);

}  // namespace kaon
