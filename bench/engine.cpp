// The engine beside ONNX Runtime on real models: time of a run, idle and beside a neighbour that keeps a core busy, and
// memory beyond start-up.
#include "engine/engine.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <functional>
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

/// A model file and how its inputs look.
struct Subject {
  std::string name;
  fs::path path;
  std::function<TensorMap(int64_t batch)> inputs;
  std::vector<int64_t> batches = {1};
  double least_db = kLeastDb;
};

TensorMap named(const fs::path& path, Tensor tensor) {
  return {{read_onnx(path).graph.required_inputs().at(0).name, std::move(tensor)}};
}

Subject subject_of(const RealModel& model) {
  const auto inputs = [model](int64_t batch) {
    return named(path_of(model), random_input(model.shape, batch, model.tokens));
  };
  return {model.name, path_of(model), inputs, model.batches};
}

/// What models/more of the collection brings: a byte classifier, a transcription of music, voice detection.
std::vector<Subject> more_models() {
  const fs::path folder = KAON_MORE_MODELS;
  const auto voice = [](int64_t batch) {
    return TensorMap{{"input", random_input({576}, batch, 0)},
                     {"state", Tensor::of({2, batch, 128}, std::vector<float>(static_cast<size_t>(256 * batch)))},
                     {"sr", Tensor::scalar(int64_t{16000})}};
  };
  const auto bytes = [](int64_t batch) {
    const std::vector<int64_t> ids = random_input({2048}, batch, 257).to_int64();
    return TensorMap{{"bytes", Tensor::of<int32_t>({batch, 2048}, std::vector<int32_t>(ids.begin(), ids.end()))}};
  };
  const auto music = [folder](int64_t batch) {
    return named(folder / "basic_pitch.onnx", random_input({43844, 1}, batch, 0));
  };
  return {{"magika", folder / "magika.onnx", bytes},
          {"basic_pitch", folder / "basic_pitch.onnx", music},
          {"silero_vad", folder / "silero_vad.onnx", voice},
          {"silero_vad_16k", folder / "silero_vad_16k_op15.onnx", voice},
          {"silero_vad_ifless", folder / "silero_vad_op18_ifless.onnx", voice}};
}

/// Keeps a core busy as long as it lives.
class Neighbour {
 public:
  Neighbour() : child_(start({KAON_PYTHON, "-c", kLoop})) {}
  ~Neighbour() { stop(child_); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

 private:
  static constexpr const char* kLoop =
      "import os, sys, threading\n"
      "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()\n"
      "while True: pass\n";
  Child child_;
};

/// A model and its inputs, which also lie in inputs.npz of the folder.
struct Session {
  Scratch scratch;
  fs::path path;
  Engine engine;
  TensorMap inputs;
  OnnxRuntimePeer peer;
  double least_db;
  std::unique_ptr<Neighbour> neighbour;

  Session(const Subject& subject, int64_t batch, int threads)
      : path(subject.path),
        engine(read_onnx(path)),
        inputs(subject.inputs(batch)),
        peer(threads),
        least_db(subject.least_db) {
    write_npz(NamedTensors(inputs.begin(), inputs.end()), scratch / "inputs.npz");
    peer.load(path, scratch / "inputs.npz");
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
      if (metrics.skipped == 0 && metrics.sqnr_db() >= least_db) continue;
      fail(ErrorCode::Numeric, name, "agrees with ONNX Runtime to {:.1f} dB only", metrics.sqnr_db());
    }
  }
};

Work timing(const Subject& subject, int64_t batch, int threads, bool busy) {
  auto session = std::make_shared<Session>(subject, batch, threads);
  Work work;
  work.check = [=] {
    session->check();
    if (busy) session->neighbour = std::make_unique<Neighbour>();
  };
  work.kaon = [=] { session->engine.run(session->inputs); };
  work.remote_peer = [=](int count) { return session->peer.run(count); };
  return work;
}

/// The file that `kaon quantize` writes for a model.
Work quantized(const Subject& subject, const char* scheme, int threads) {
  constexpr double kLeastQuantizedDb = 15;  // ties of 8 bits, amplified by a deep network
  const Scratch scratch;
  const TensorMap samples = subject.inputs(4);
  write_npz(NamedTensors(samples.begin(), samples.end()), scratch / "calib.npz");
  Subject file = subject;
  file.path = scratch / "quantized.onnx";
  file.least_db = kLeastQuantizedDb;
  output_of({KAON_PROGRAM, "quantize", subject.path.string(), "--scheme", scheme, "--calib",
             (scratch / "calib.npz").string(), "-o", file.path.string(), "-q"});
  return timing(file, 1, threads, false);
}

/// MiB beyond start-up, each in a process of its own.
std::pair<double, double> memory(const Subject& subject, int64_t batch) {
  const Scratch scratch;
  const fs::path inputs = scratch / "inputs.npz";
  const TensorMap samples = subject.inputs(batch);
  write_npz(NamedTensors(samples.begin(), samples.end()), inputs);
  const auto kaon = nlohmann::json::parse(
      output_of({KAON_PROGRAM, "run", subject.path.string(), "--input", inputs.string(), "--repeat",
                 std::to_string(kMemoryRuns), "--threads", std::to_string(kThreads), "--json", "-q"}));
  const double kaon_startup = kaon.at("startup_mb"), kaon_peak = kaon.at("peak_mb");
  OnnxRuntimePeer peer(kThreads);
  peer.load(subject.path, inputs);
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
  const auto add_case = [&](const std::string& name, int threads, const std::function<Work()>& prepare) {
    cases.push_back({fmt::format("{}/{}t", name, threads), "ONNX Runtime", "ms", 0, threads, prepare});
  };
  std::vector<Subject> subjects;
  for (const RealModel& model : real_models()) subjects.push_back(subject_of(model));
  const std::vector<Subject> own = subjects;
  for (const Subject& subject : more_models()) {
    if (fs::exists(subject.path)) {
      subjects.push_back(subject);
    } else {
      fmt::print(stderr, "{} left out: {} does not exist; scripts/models.sh brings it\n", subject.name,
                 subject.path.string());
    }
  }
  for (const Subject& subject : subjects) {
    for (const int64_t batch : subject.batches) {
      for (const int threads : {1, kThreads}) {
        add_case(fmt::format("{}/batch{}", subject.name, batch), threads,
                 [=] { return timing(subject, batch, threads, false); });
      }
    }
  }
  for (const Subject& subject : subjects) {
    for (const int threads : {1, kThreads}) {
      add_case("busy/" + subject.name, threads, [=] { return timing(subject, 1, threads, true); });
    }
  }
  for (const Subject& subject : own) {
    for (const int threads : {1, kThreads}) {
      add_case("w8a8c/" + subject.name, threads, [=] { return quantized(subject, "w8a8c", threads); });
    }
  }
  for (const Subject& subject : own) {
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
