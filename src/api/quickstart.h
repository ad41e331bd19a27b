#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "api/train.h"
#include "base/progress.h"

namespace kaon {

struct QuickstartCall : TrainingOptions {
  std::filesystem::path output = "kaon-quickstart";  ///< the folder; files of an earlier run are replaced one by one
  Progress* progress = &no_progress();
};

/// A model of the table: its accuracy and loss on the 10,000 test images, and its size on disk.
struct QuickstartRow {
  std::string scheme;  ///< "float" for the model itself
  double accuracy = 0;
  double loss = 0;
  int64_t bytes = 0;
  std::string file;  ///< in the folder; "" where no runtime loads it, and `bytes` is what it would take
};

struct QuickstartResult {
  std::string model;
  QuickstartRow exact;
  std::vector<QuickstartRow> schemes;
  double seconds = 0;
  std::string before;  ///< the layers of the model
  std::string after;   ///< the same with the quantizers of the first scheme
};

/// Trains a small network on Fashion-MNIST, quantizes it in six ways, measures each, and leaves models, pictures, a
/// debugging report and results.json in a folder.
QuickstartResult quickstart(const QuickstartCall& call);

nlohmann::ordered_json to_json(const QuickstartResult& result);

}  // namespace kaon
