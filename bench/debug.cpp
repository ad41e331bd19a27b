// The whole debug folder with histograms of activations, beside what it may cost: three forwards of the float model,
// 15 ns for each element that a quantizer saw and 5 ms a picture.
#include "api/debug.h"

#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "base/error.h"
#include "bench.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "transformer.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr double kForwards = 3;
constexpr double kElement = 15e-9;
constexpr double kPicture = 5e-3;
constexpr int64_t kBatch = 8;

/// Noise under the name of the model's input.
class NoiseDataset : public Dataset {
 public:
  NoiseDataset(std::string name, Shape sample, int64_t size)
      : name_(std::move(name)), sample_(std::move(sample)), size_(size) {}

  int64_t size() const override { return size_; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    std::mt19937 generator(static_cast<uint32_t>(first));
    std::normal_distribution<float> normal;
    Shape shape = sample_;
    shape.insert(shape.begin(), count);
    std::vector<float> values(static_cast<size_t>(element_count(shape)));
    for (float& value : values) value = normal(generator);
    return {{{name_, Tensor::of(shape, values)}}, {}};
  }

 private:
  std::string name_;
  Shape sample_;
  int64_t size_;
};

template <typename Body>
double seconds_of(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The fastest of a few: forwards are the smallest part of what is allowed.
double forward_seconds(const Model& model, const Dataset& data) {
  Engine engine(model);
  double best = INFINITY;
  for (int i = 0; i < 3; ++i) {
    double sum = 0;
    for (int64_t first = 0; first < data.size(); first += kBatch) {
      const Batch batch = data.read(first, kBatch);
      sum += seconds_of([&] { engine.run(batch.inputs); });
    }
    best = std::min(best, sum);
  }
  return best;
}

std::pair<double, double> measure(const Model& model, const Dataset& data, size_t layers) {
  const QuantizedModel quantized = quantize(model, scheme_config("w8a8"), &data);
  if (quantized.quantized_layers().size() != layers) {
    fail(ErrorCode::Internal, "bench", "{} layers are quantized, not {}", quantized.quantized_layers().size(), layers);
  }
  const double forward = forward_seconds(quantized.model, data);
  const fs::path folder = fs::temp_directory_path() / fmt::format("kaon_bench_debug_{}", getpid());
  DebugOptions options;
  options.act_hist = true;
  options.batch = kBatch;
  DebugReport report;
  int64_t pictures = 0;
  const double values = seconds_of([&] { report = debug(quantized, data, options); });
  const double drawing = seconds_of([&] { pictures = write_debug_folder(report, folder, false); });
  fs::remove_all(folder);
  if (report.samples != data.size() || report.nan || pictures < static_cast<int64_t>(5 * layers)) {
    fail(ErrorCode::Internal, "bench", "the report is not whole");
  }
  int64_t elements = report.observed;
  for (const QuantizerDebug& quantizer : report.quantizers) {
    if (quantizer.kind == Slot::Weight || quantizer.kind == Slot::Bias) elements += quantizer.io.count;
  }
  const double budget =
      kForwards * forward + kElement * static_cast<double>(elements) + kPicture * static_cast<double>(pictures);
  fmt::print(
      stderr,
      "forward {:.3f} s, {:.1f} M elements in {:.3f} s of {:.3f}, {} pictures and the page in {:.3f} s of {:.3f}\n",
      forward, static_cast<double>(elements) / 1e6, values,
      kForwards * forward + kElement * static_cast<double>(elements), pictures, drawing,
      kPicture * static_cast<double>(pictures));
  return {values + drawing, budget};
}

const bool kAdded = add([](Cases& cases) {
  const char* peer = "3 forwards + 15 ns an element + 5 ms a picture";
  cases.push_back({.name = "transformer/204_layers", .peer_name = peer, .unit = "s", .prepare = [] {
                     const auto model = std::make_shared<Model>(make_transformer(34, 256, 8, 64));
                     const auto data = std::make_shared<NoiseDataset>("x", Shape{64, 256}, 16);
                     return Work{.measure = [=] { return measure(*model, *data, 204); }};
                   }});
  const fs::path path = fs::path(KAON_MODELS) / "mobilenetv2_1.0_224_imagenet_fp32.onnx";
  if (!fs::exists(path)) {
    fmt::print(stderr, "{} is not there: MobileNetV2 is left out\n", path.string());
    return;
  }
  cases.push_back({.name = "mobilenetv2", .peer_name = peer, .unit = "s", .prepare = [=] {
                     const auto model = std::make_shared<Model>(read_onnx(path));
                     const auto data =
                         std::make_shared<NoiseDataset>(model->graph.required_inputs()[0].name, Shape{3, 224, 224}, 16);
                     return Work{.measure = [=] { return measure(*model, *data, 53); }};
                   }});
});

}  // namespace

}  // namespace kaon::bench
