// The engine beside ONNX Runtime: time of a run, and memory beyond start-up, on real models.
#include "engine/engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "bench.h"
#include "child.h"
#include "engine_peer.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "numerics/error_metrics.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
constexpr double kLeastDb = 80;  // the outputs must agree that well before anything is timed
constexpr int kMemoryRuns = 3;

struct Subject {
  const char* name;
  const char* file;
  Shape shape;  ///< of the input, for one sample
  std::vector<int64_t> batches;
  int64_t tokens = 0;  ///< the input holds integers below this; 0: numbers of a normal distribution
};

const std::vector<Subject> kSubjects{
    {"mobilenetv2", "mobilenetv2_1.0_224_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
    {"resnet20", "resnet20_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"resnet56", "resnet56_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"resnet8", "resnet8_cifar10_mlperftiny_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"etinynet", "etinynet1.0_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
    {"ultraface", "ultraface_RFB-320.onnx", {3, 240, 320}, {1}},
    {"pp_ocr", "ch_PP-OCRv4_rec_infer.onnx", {3, 48, 320}, {1}},
    {"stories260k", "stories260K/model.onnx", {128}, {1, 8}, 512},
};

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

fs::path path_of(const Subject& subject) { return fs::path(KAON_MODELS) / subject.file; }

Tensor make_input(const Subject& subject, int64_t batch) {
  Shape shape = subject.shape;
  shape.insert(shape.begin(), batch);
  const auto count = static_cast<size_t>(element_count(shape));
  std::mt19937 random(1);
  if (subject.tokens > 0) {
    std::vector<int64_t> ids(count);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(subject.tokens));
    return Tensor::of<int64_t>(shape, ids);
  }
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return Tensor::of<float>(shape, values);
}

/// A model and its inputs, which also lie in inputs.npz of the folder.
struct Session {
  Scratch scratch;
  Engine engine;
  TensorMap inputs;
  OnnxRuntimePeer peer;

  Session(const Subject& subject, int64_t batch) : engine(read_onnx(path_of(subject))), peer(kThreads) {
    const std::string name = engine.model().graph.required_inputs().at(0).name;
    inputs.emplace(name, make_input(subject, batch));
    write_npz({{name, inputs.at(name)}}, scratch / "inputs.npz");
    peer.load(path_of(subject), scratch / "inputs.npz");
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

Work timing(const Subject& subject, int64_t batch) {
  auto session = std::make_shared<Session>(subject, batch);
  Work work;
  work.check = [=] { session->check(); };
  work.kaon = [=] { session->engine.run(session->inputs); };
  work.remote_peer = [=](int count) { return session->peer.run(count); };
  return work;
}

/// MiB beyond start-up, each in a process of its own.
std::pair<double, double> memory(const Subject& subject, int64_t batch) {
  const Scratch scratch;
  const fs::path inputs = scratch / "inputs.npz";
  const std::string name = read_onnx(path_of(subject)).graph.required_inputs().at(0).name;
  write_npz({{name, make_input(subject, batch)}}, inputs);
  const auto kaon = nlohmann::json::parse(
      output_of({KAON_PROGRAM, "run", path_of(subject).string(), "--input", inputs.string(), "--repeat",
                 std::to_string(kMemoryRuns), "--threads", std::to_string(kThreads), "--json", "-q"}));
  const double kaon_startup = kaon.at("startup_mb"), kaon_peak = kaon.at("peak_mb");
  OnnxRuntimePeer peer(kThreads);
  peer.load(path_of(subject), inputs);
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
  for (const Subject& subject : kSubjects) {
    for (const int64_t batch : subject.batches) {
      const std::string name = fmt::format("{}/batch{}", subject.name, batch);
      cases.push_back({name, "ONNX Runtime", "ms", 0, kThreads, [=] { return timing(subject, batch); }});
    }
  }
  for (const Subject& subject : kSubjects) {
    for (const int64_t batch : subject.batches) {
      const std::string name =
          fmt::format("memory/{}{}", subject.name, batch > 1 ? fmt::format("/batch{}", batch) : "");
      const auto measure = [=] { return Work{.measure = [=] { return memory(subject, batch); }}; };
      cases.push_back({name, "ONNX Runtime", "MiB", 0, kThreads, measure});
    }
  }
});

}  // namespace

}  // namespace kaon::bench
