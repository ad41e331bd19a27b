#pragma once
#include <filesystem>

#include "base/progress.h"
#include "doctor/diagnosis.h"
#include "graph/dataset.h"

namespace kaon {

/// report.html, and debug's pages of the model before and after the cure, before.html and after.html, with what some
/// samples of `data` look like.
void write_doctor_pages(const Diagnosis& diagnosis, const Dataset& data, int64_t batch,
                        const std::filesystem::path& folder, Progress& progress);

}  // namespace kaon
