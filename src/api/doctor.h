#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/quant_options.h"
#include "doctor/doctor.h"

namespace kaon {

struct DoctorCall {
  std::filesystem::path model;
  std::filesystem::path output;  ///< the folder to write
  QuantOptions quant;
  DataOptions data;
  std::string metric;
  double max_drop = 0.01;
  std::optional<double> expect;
  std::vector<std::string> allow = {"same", "granularity", "bits", "float"};
  double time = 0;  ///< seconds; 0 = no limit
  bool resume = false;
  bool force = false;  ///< write into a folder that is not empty
  uint64_t seed = 0;
  Progress* progress = &no_progress();
};

/// Diagnoses a model and writes diagnosis.json, cure.json, the cured model.onnx, the configs of the front and
/// report.html into a folder. journal.jsonl is there from the beginning; the rest appears whole at the end.
Diagnosis doctor_file(const DoctorCall& call);

/// diagnosis.json.
nlohmann::ordered_json to_json(const Diagnosis& diagnosis);

}  // namespace kaon
