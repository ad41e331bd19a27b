#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

namespace kaon::bench {

/// ONNX Runtime in a Python process of its own; engine_peer.py says what it understands. Throws where it breaks.
class OnnxRuntimePeer {
 public:
  explicit OnnxRuntimePeer(int threads);
  ~OnnxRuntimePeer();
  OnnxRuntimePeer(const OnnxRuntimePeer&) = delete;
  OnnxRuntimePeer& operator=(const OnnxRuntimePeer&) = delete;

  void load(const std::filesystem::path& model, const std::filesystem::path& inputs);
  /// Runs once and writes the outputs.
  void write_outputs(const std::filesystem::path& npz);
  /// The seconds of each of `count` runs.
  std::vector<double> run(int count);
  /// MiB: the largest resident set after start-up, and the same now.
  std::pair<double, double> memory();

 private:
  nlohmann::json ask(const std::string& command);
  int pid_ = -1;
  int to_ = -1;
  int from_ = -1;
};

}  // namespace kaon::bench
