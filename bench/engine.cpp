// The engine beside ONNX Runtime: time of a run, and memory beyond start-up, on real models.
#include "engine/engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench.h"
#include "child.h"
#include "engine_peer.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "numerics/error_metrics.h"
#include "real_models.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
constexpr double kLeastDb = 80;  // the outputs must agree that well before anything is timed
constexpr int kMemoryRuns = 3;

/// A folder for what the peers hand each other; it goes with the case.
class Scratch {
 public:
  Scratch() {
    std::string pattern = fs::temp_directory_path() / "kaon_bench_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) fail(ErrorCode::Io, pattern, "no folder for temporary files");
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

/// A model and its inputs, which also lie in inputs.npz of the folder.
struct Session {
  Scratch scratch;
  Engine engine;
  TensorMap inputs;
  OnnxRuntimePeer peer;

  Session(const RealModel& model, int64_t batch) : engine(read_onnx(path_of(model))), peer(kThreads) {
    const std::string name = engine.model().graph.required_inputs().at(0).name;
    inputs.emplace(name, random_input(model.shape, batch, model.tokens));
    write_npz({{name, inputs.at(name)}}, scratch / "inputs.npz");
    peer.load(path_of(model), scratch / "inputs.npz");
  }

  void check() {
    peer.write_outputs(scratch / "outputs.npz");
    const NamedTensors expected = read_npz(scratch / "outputs.npz");
    const std::vector<Tensor> got = engine.run(inputs);
    if (got.size() != expected.size()) fail(ErrorCode::Numeric, "outputs", "{}, not {}", got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const auto& [name, reference] = expected[i];
      if (got[i].shape() != reference.shape()) {
        fail(ErrorCode::Numeric, name, "is {}; ONNX Runtime's is {}", to_string(got[i].shape()),
             to_string(reference.shape()));
      }
      ErrorMetrics metrics;
      metrics.update(got[i].to_float(), reference.to_float());
      if (metrics.skipped == 0 && metrics.sqnr_db() >= kLeastDb) continue;
      fail(ErrorCode::Numeric, name, "agrees with ONNX Runtime to {:.1f} dB only", metrics.sqnr_db());
    }
  }
};

Work timing(const RealModel& model, int64_t batch) {
  auto session = std::make_shared<Session>(model, batch);
  Work work;
  work.check = [=] { session->check(); };
  work.kaon = [=] { session->engine.run(session->inputs); };
  work.remote_peer = [=](int count) { return session->peer.run(count); };
  return work;
}

/// MiB beyond start-up, each in a process of its own.
std::pair<double, double> memory(const RealModel& model, int64_t batch) {
  const Scratch scratch;
  const fs::path inputs = scratch / "inputs.npz";
  const std::string name = read_onnx(path_of(model)).graph.required_inputs().at(0).name;
  write_npz({{name, random_input(model.shape, batch, model.tokens)}}, inputs);
  const auto kaon = nlohmann::json::parse(
      output_of({KAON_PROGRAM, "run", path_of(model).string(), "--input", inputs.string(), "--repeat",
                 std::to_string(kMemoryRuns), "--threads", std::to_string(kThreads), "--json", "-q"}));
  const double kaon_startup = kaon.at("startup_mb"), kaon_peak = kaon.at("peak_mb");
  OnnxRuntimePeer peer(kThreads);
  peer.load(path_of(model), inputs);
  peer.run(kMemoryRuns);
  const auto [peer_startup, peer_peak] = peer.memory();
  fmt::print(stderr, "start-up: kaon {:.0f} MiB, Python with onnxruntime {:.0f} MiB\n", kaon_startup, peer_startup);
  return {kaon_peak - kaon_startup, peer_peak - peer_startup};
}

const bool kAdded = add([](Cases& cases) {
  for (const char* needed : {KAON_PYTHON, KAON_MODELS}) {
    if (fs::exists(needed)) continue;
    fmt::print(stderr, "engine left out: {} does not exist\n", needed);
    return;
  }
  for (const RealModel& model : real_models()) {
    for (const int64_t batch : model.batches) {
      const std::string name = fmt::format("{}/batch{}", model.name, batch);
      cases.push_back({name, "ONNX Runtime", "ms", 0, kThreads, [=] { return timing(model, batch); }});
    }
  }
  for (const RealModel& model : real_models()) {
    for (const int64_t batch : model.batches) {
      const std::string name = fmt::format("memory/{}{}", model.name, batch > 1 ? fmt::format("/batch{}", batch) : "");
      const auto measure = [=] { return Work{.measure = [=] { return memory(model, batch); }}; };
      cases.push_back({name, "ONNX Runtime", "MiB", 0, kThreads, measure});
    }
  }
});

}  // namespace

}  // namespace kaon::bench
