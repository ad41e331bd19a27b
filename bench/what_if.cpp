// Enable-one and disable-one of every quantizer, beside what it may cost: 0.6 forwards of the float model for each
// question. Every answer is checked, bit for bit, against a model of its own with that quantizer switched.
#include "quant/what_if.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/stopwatch.h"
#include "bench.h"
#include "data/dataset.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr double kForwards = 0.6;
constexpr int64_t kBatch = 8;
constexpr int64_t kMemory = int64_t{512} << 20;

std::vector<float> run_alone(const Model& model, const Dataset& data) {
  Engine engine(model);
  std::vector<float> values;
  for (int64_t first = 0; first < data.size(); first += kBatch) {
    const Tensor output = engine.run(data.read(first, std::min(kBatch, data.size() - first)).inputs)[0];
    const std::span<const float> part = output.as<float>();
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

struct Answers {
  std::vector<Question> questions;
  std::vector<std::vector<float>> outputs;
  double seconds = 0;
};

/// Every quantizer switched against `base`, one at a time.
Answers sweep(WhatIf& what_if, const Question& base, const Dataset& data, int64_t each) {
  Answers answers;
  for (size_t i = 0; i < base.on.size(); ++i) {
    answers.questions.push_back(base);
    answers.questions.back().on[i] = !base.on[i];
  }
  answers.outputs.assign(base.on.size(), std::vector<float>(static_cast<size_t>(data.size() * each)));
  const Stopwatch watch;
  what_if.ask(base, answers.questions, [&](size_t question, int64_t first, const std::vector<Tensor>& outputs) {
    const std::span<const float> values = outputs[0].as<float>();
    std::copy(values.begin(), values.end(), answers.outputs[question].begin() + first * each);
  });
  answers.seconds = watch.seconds();
  return answers;
}

/// Of one forward, the mean of several: the questions take long enough to meet every mood of the machine.
double forward_seconds(Engine& engine, const Dataset& data) {
  constexpr int kRuns = 10;
  double sum = 0;
  for (int i = 0; i < kRuns; ++i) {
    for (int64_t first = 0; first < data.size(); first += kBatch) {
      const Batch batch = data.read(first, std::min(kBatch, data.size() - first));
      const Stopwatch watch;
      engine.run(batch.inputs);
      sum += watch.seconds();
    }
  }
  return sum / kRuns;
}

std::pair<double, double> measure(const QuantizedModel& quantized, const Dataset& data, bool disable, bool check) {
  WhatIf what_if(quantized, data, {.batch = kBatch, .memory = kMemory});
  const auto each = static_cast<int64_t>(run_alone(quantized.model, data).size()) / data.size();
  Engine original(quantized.original);
  const double before = forward_seconds(original, data);
  const Answers answers = sweep(what_if, disable ? what_if.as_it_is() : what_if.all_off(), data, each);
  const double forward = (before + forward_seconds(original, data)) / 2;
  const Replay::Cost& cost = what_if.cost();
  const auto count = static_cast<double>(quantized.quantizers.size());
  fmt::print(
      stderr,
      "{} questions: {:.2f} s, {:.3f} forwards each (a forward: {:.3f} s); switching {:.3f} ms each; kept {:.0f} "
      "MiB, of that {:.0f} in a file\n",
      count, answers.seconds, answers.seconds / forward / count, forward, 1000 * cost.switch_seconds / count,
      static_cast<double>(cost.kept_bytes) / (1 << 20), static_cast<double>(cost.spilled_bytes) / (1 << 20));
  if (cost.kept_bytes - cost.spilled_bytes > kMemory) fail(ErrorCode::Internal, "bench", "more memory than was given");
  for (size_t i = 0; check && i < answers.questions.size(); ++i) {
    QuantizedModel alone = quantized;
    for (Quantizer& quantizer : alone.quantizers) {
      quantizer.enabled = answers.questions[i].on[static_cast<size_t>(quantizer.id)];
    }
    if (run_alone(simulate(alone), data) != answers.outputs[i]) {
      fail(ErrorCode::Internal, "bench", "the answer about {} is not that of the model alone",
           quantized.quantizers[i].label());
    }
  }
  return {answers.seconds, kForwards * count * forward};
}

struct Patient {
  const char* name;
  const char* file;
  const char* scheme;
  const char* data;  ///< a description; DATA stands for the folder of the data
  int64_t samples;
};

constexpr Patient kPatients[] = {
    {"resnet20/w8a8/1000", "resnet20_cifar10_fp32.onnx", "w8a8",
     R"({"cifar": "DATA/cifar10/test_batch.bin", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]})", 1000},
    {"mobilenetv2/w8a8c/64", "mobilenetv2_1.0_224_imagenet_fp32.onnx", "w8a8c",
     R"({"images": "DATA/imagenet/val", "labels": "DATA/imagenet/val_labels.txt", "scale": 1,
         "mean": [127.5, 127.5, 127.5], "std": [127.5, 127.5, 127.5]})",
     64},
};

std::shared_ptr<Dataset> open_data(const Patient& patient, const Model& model) {
  const std::string folder = (fs::path(KAON_MODELS).parent_path() / "data").string();
  std::string text = patient.data;
  for (size_t at = text.find("DATA"); at != std::string::npos; at = text.find("DATA")) text.replace(at, 4, folder);
  const fs::path file = fs::temp_directory_path() / fmt::format("kaon_bench_what_if_{}.json", getpid());
  std::ofstream(file) << text;
  std::shared_ptr<Dataset> data = open_dataset(file, model.graph.required_inputs(), {.limit = patient.samples});
  fs::remove(file);
  return data;
}

const bool kAdded = add([](Cases& cases) {
  for (const Patient& patient : kPatients) {
    const fs::path path = fs::path(KAON_MODELS) / patient.file;
    if (!fs::exists(path)) {
      fmt::print(stderr, "{} is not there: {} is left out\n", path.string(), patient.name);
      continue;
    }
    for (const bool disable : {false, true}) {
      cases.push_back({.name = fmt::format("{}/{}", patient.name, disable ? "disable_one" : "enable_one"),
                       .peer_name = "0.6 float forwards a question",
                       .unit = "s",
                       .prepare = [=] {
                         const Model model = read_onnx(path);
                         const std::shared_ptr<Dataset> data = open_data(patient, model);
                         const auto quantized = std::make_shared<QuantizedModel>(
                             quantize(model, scheme_config(patient.scheme), data.get()));
                         return Work{.measure = [=] { return measure(*quantized, *data, disable, true); }};
                       }});
    }
  }
});

}  // namespace

}  // namespace kaon::bench
