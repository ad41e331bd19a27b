#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/progress.h"

namespace kaon {

/// From this SQNR on a difference counts as float noise: float32 sums in another order stay above it.
inline constexpr double kNoiseDb = 100;

struct CompareOptions {
  std::filesystem::path a;  ///< the reference
  std::filesystem::path b;
  std::filesystem::path input;  ///< .npz or test-data folder, for both: one run; or …
  std::filesystem::path data;   ///< … samples, run batch by batch
  int64_t limit = 0;            ///< of `data`; 0 = all
  int64_t batch = 8;
  Progress* progress = &no_progress();
};

/// How far a value of B is from that of A.
struct ValueDifference {
  std::string name;
  double sqnr_db = 0;  ///< Inf where nothing differs
  double cosine = 0;
  double max_abs = 0;
  bool differs = false;  ///< not bit-equal, and below kNoiseDb or with NaN or Inf in other places
};

struct CompareResult {
  std::vector<ValueDifference> outputs;
  std::vector<ValueDifference> values;          ///< of the same name and shape in both, in A's order
  std::optional<std::string> first_difference;  ///< the first of `values` that differs, else the first such output
  std::vector<std::string> unused;              ///< arrays of the input file that a model does not take
};

/// Runs two models on the same inputs. Outputs are paired by name, or by place where the names differ; throws
/// InvalidInput where their number or shapes differ.
CompareResult compare_models(const CompareOptions& options);

/// Numbers that are not finite, such as the SQNR of equal values, become null.
nlohmann::ordered_json to_json(const CompareResult& result);

}  // namespace kaon
