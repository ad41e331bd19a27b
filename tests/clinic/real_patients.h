#pragma once
// Patients made from real models that lie beside the checkout, with real data.
#include <filesystem>

#include "patients.h"

namespace kaon::clinic {

/// The names of the models.
const std::vector<std::string>& real_models();
std::filesystem::path file_of(const std::string& model);
/// Diseases that this model can have; the last is none.
std::vector<std::string> diseases_of(const std::string& model);
/// One patient; the same for the same disease and seed.
Patient make_real_patient(const std::string& model, const std::string& disease, uint64_t seed);

}  // namespace kaon::clinic
