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

/// Whatever is quantized to 8 bits loses some; what is better than this is not told apart.
inline constexpr double kFineDb = 50;
/// A node that loses this much more than it was given is a cliff.
inline constexpr double kCliffDb = 10;

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
  std::string layer;     ///< the layer that makes it in A, else the node, as `kaon info` and debug call it
  std::string op;
};

/// The first node of A that makes far more of a difference than it was given.
struct Parting {
  ValueDifference at;
  double input_sqnr_db = 0;  ///< of the worst that it reads; Inf where that is equal
};

struct CompareResult {
  std::vector<ValueDifference> outputs;
  std::vector<ValueDifference> values;          ///< of the same name and shape in both, in A's order
  std::optional<std::string> first_difference;  ///< the first of `values` that differs, else the first such output
  std::optional<Parting> parting;               ///< nothing where no node is a cliff
  std::vector<std::string> unused;              ///< arrays of the input file that a model does not take
};

/// Runs two models on the same inputs. Outputs are paired by name, or by place where the names differ; throws
/// InvalidInput where their number or shapes differ.
CompareResult compare_models(const CompareOptions& options);

/// Numbers that are not finite, such as the SQNR of equal values, become null.
nlohmann::ordered_json to_json(const CompareResult& result);

}  // namespace kaon
