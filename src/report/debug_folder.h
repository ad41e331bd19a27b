#pragma once
#include <cstdint>
#include <filesystem>

#include "base/progress.h"
#include "debug/debug_report.h"

namespace kaon {

/// Throws InvalidInput where `folder` exists and is not an empty folder, unless `force` allows that, and Io where it
/// could not be written.
void check_debug_folder(const std::filesystem::path& folder, bool force);

/// Writes the pictures, tables and the page of `report`; returns the number of pictures. They are drawn in a
/// folder of their own and moved at the end. With `force`, files of an earlier report are replaced or removed, and no
/// others (AtomicFolder).
int64_t write_debug_folder(const DebugReport& report, const std::filesystem::path& folder, bool force,
                           Progress& progress = no_progress());

}  // namespace kaon
