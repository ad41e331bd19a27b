// Simulated quantization beside the float forward of the same model, and calibration runs beside bare ones.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/error.h"
#include "bench.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"
#include "numerics/error_metrics.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"
#include "real_models.h"
#include "transformer.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
// Plan against interpreter: a sum in another order moves some values to the next code, and the net may blow that up to
// what quantization itself does.
constexpr double kLeastDb = 25;
constexpr double kMarginDb = 3;
constexpr int64_t kRuns = 8;  // batches of a calibration, so that making its engine counts little

/// What is measured.
struct Subject {
  std::string name;
  std::function<Model()> load;
  Shape shape;  ///< of the input, for one sample
  std::vector<int64_t> batches;
  int64_t tokens = 0;  ///< see random_input()

  bool convolutional() const { return shape.size() == 3; }
  TensorMap inputs(const Model& model, int64_t batch) const {
    return {{model.graph.required_inputs().at(0).name, random_input(shape, batch, tokens)}};
  }
};

/// The models that are there, and a transformer made here.
std::vector<Subject> subjects() {
  std::vector<Subject> found;
  for (const RealModel& model : real_models()) {
    if (fs::exists(path_of(model))) {
      found.push_back(
          {model.name, [=] { return read_onnx(path_of(model)); }, model.shape, model.batches, model.tokens});
    } else {
      fmt::print(stderr, "{} left out: no {}\n", model.name, model.file);
    }
  }
  found.push_back({"transformer", [] { return make_transformer(12, 768, 12, 128); }, {128, 768}, {1}});
  return found;
}

/// What simulation is measured with: the first on every model, all on transformers.
const std::vector<std::string> kSchemes{"w8a8", "fp8", "w4g32", "w8a8d", "fp8d", "mxfp8"};

/// The inputs of one run, several times over, as a dataset.
class Repeated : public Dataset {
 public:
  explicit Repeated(TensorMap inputs, int64_t times = 1) : inputs_(std::move(inputs)), times_(times) {}
  int64_t size() const override { return times_ * inputs_.begin()->second.shape().front(); }
  bool has_labels() const override { return false; }
  Batch read(int64_t, int64_t) const override { return {inputs_, {}}; }

 private:
  TensorMap inputs_;
  int64_t times_;
};

QuantizedModel quantized(const Model& model, const TensorMap& inputs, const Config& config) {
  const Repeated data(inputs);
  QuantizeSettings settings;
  settings.batch = data.size();
  return quantize(model, config, &data, settings);
}

double agreement(const Tensor& a, const Tensor& b) {
  ErrorMetrics metrics;
  metrics.update(a.to_float(), b.to_float());
  return metrics.skipped == 0 ? metrics.sqnr_db() : -INFINITY;
}

Work simulation(const Subject& subject, int64_t batch, const std::string& scheme) {
  const Model model = subject.load();
  const auto inputs = std::make_shared<const TensorMap>(subject.inputs(model, batch));
  const QuantizedModel small = quantized(model, *inputs, scheme_config(scheme));
  const auto simulation = std::make_shared<Engine>(simulate(small));
  const auto plain = std::make_shared<Engine>(small.model);
  Work work;
  work.check = [=] {
    Frame frame = simulation->start(*inputs);
    frame.finish();
    const Tensor planned = simulation->run(*inputs).at(0);
    const double db = agreement(planned, frame.outputs().at(0));
    const double to_float = agreement(planned, plain->run(*inputs).at(0));
    if (!(db >= std::min(kLeastDb, to_float - kMarginDb))) {
      fail(ErrorCode::Numeric, subject.name, "plan and interpreter agree to {:.1f} dB only, the float model to {:.1f}",
           db, to_float);
    }
  };
  work.kaon = [=] { simulation->run(*inputs); };
  work.peer = [=] { plain->run(*inputs); };
  return work;
}

/// Calibration of the activations beside a bare run of the model.
Work calibration(const Subject& subject, int64_t batch, const std::string& observer) {
  const Model model = subject.load();
  const auto inputs = std::make_shared<const TensorMap>(subject.inputs(model, batch));
  const auto plain = std::make_shared<Engine>(model);
  Config config = scheme_config("w8a8");
  set_observer(config, {observer, {}});
  const auto small = std::make_shared<QuantizedModel>(quantized(model, *inputs, config));
  const auto many = std::make_shared<const Repeated>(*inputs, kRuns);
  QuantizeSettings settings;
  settings.batch = batch;
  Work work;
  work.kaon = [=] { calibrate_activations(*small, *many, settings); };
  work.peer = [=] {
    for (int64_t i = 0; i < kRuns; ++i) plain->run(*inputs);
  };
  return work;
}

const bool kAdded = add([](Cases& cases) {
  constexpr const char* kPeer = "float forward";
  for (const Subject& subject : subjects()) {
    for (const std::string& scheme : kSchemes) {
      if (subject.convolutional() && scheme != kSchemes.front()) continue;
      for (const int64_t batch : subject.batches) {
        cases.push_back({fmt::format("simulate/{}/{}/batch{}", subject.name, scheme, batch), kPeer, "ms", 0, kThreads,
                         [=] { return simulation(subject, batch, scheme); }});
      }
    }
    if (!subject.convolutional()) continue;
    const int64_t most = subject.batches.back();
    for (const char* observer : {"min_max", "percentile"}) {
      cases.push_back({fmt::format("calibrate/{}/{}/batch{}", subject.name, observer, most), "float forwards", "ms", 0,
                       kThreads, [=] { return calibration(subject, most, observer); }});
    }
  }
});

}  // namespace

}  // namespace kaon::bench
