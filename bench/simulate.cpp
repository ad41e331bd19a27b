// Simulated quantization beside the float forward of the same model, and observed runs beside bare ones.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "base/error.h"
#include "bench.h"
#include "engine/engine.h"
#include "graph/fake_quantize.h"
#include "io/onnx/onnx.h"
#include "numerics/error_metrics.h"
#include "numerics/histogram.h"
#include "simulate_transformer.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr int kThreads = 2;
// Plan against interpreter: a sum in another order moves some values to the next code, and the net may blow that up to
// what quantization itself does.
constexpr double kLeastDb = 25;
constexpr double kMarginDb = 3;

struct Subject {
  const char* name;
  const char* file;  ///< nullptr: the transformer made here
  Shape shape;       ///< of the input, for one sample
  std::vector<int64_t> batches;
  int64_t tokens = 0;  ///< the input holds integers below this; 0: numbers of a normal distribution
};

const std::vector<Subject> kSubjects{
    {"mobilenetv2", "mobilenetv2_1.0_224_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
    {"resnet20", "resnet20_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"resnet56", "resnet56_cifar10_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"resnet8", "resnet8_cifar10_mlperftiny_fp32.onnx", {3, 32, 32}, {1, 8}},
    {"etinynet", "etinynet1.0_imagenet_fp32.onnx", {3, 224, 224}, {1, 8}},
    {"stories260k", "stories260K/model.onnx", {128}, {1, 8}, 512},
    {"transformer", nullptr, {128, 768}, {1}},
};

struct Scheme {
  const char* name;
  TensorSpec weight;
  TensorSpec activation;
  bool is_static = true;
};

const std::vector<Scheme> kSchemes{
    {"w8a8",
     {.format = "int8", .granularity = Granularity::PerChannel},
     {.format = "uint8", .symmetric = false}},
    {"fp8", {.format = "fp8_e4m3", .granularity = Granularity::PerChannel}, {.format = "fp8_e4m3"}},
    {"w8a8_dynamic",
     {.format = "int8", .granularity = Granularity::PerChannel},
     {.format = "uint8", .symmetric = false},
     false},
    {"fp8_per_token",
     {.format = "fp8_e4m3", .granularity = Granularity::PerChannel},
     {.format = "fp8_e4m3", .granularity = Granularity::PerToken},
     false},
    {"mxfp8", {.format = "mxfp8_e4m3", .axis = -1}, {.format = "mxfp8_e4m3", .axis = -1}, false},
};

bool is_layer(const Node& node) {
  return node.domain.empty() && (node.op == "Conv" || node.op == "Gemm" || node.op == "MatMul");
}

/// What the layers read and give, and sums; a bias, batch norm, Relu or Clip behind them counts as theirs.
std::set<std::string> quantized_values(const Graph& graph) {
  const Uses uses(graph);
  std::set<std::string> values;
  const auto end_of = [&](std::string value) {
    while (uses.consumers(value).size() == 1 && !uses.is_output(value)) {
      const Node& next = graph.nodes[static_cast<size_t>(uses.consumers(value)[0])];
      const bool constant_rest = std::count_if(next.inputs.begin(), next.inputs.end(), [&](const std::string& input) {
                                   return graph.find_initializer(input) == nullptr && !input.empty();
                                 }) == 1;
      const bool follows = next.op == "Relu" || next.op == "Clip" || next.op == "BatchNormalization" ||
                           (next.op == "Add" && constant_rest);
      if (!follows) break;
      value = next.outputs[0];
    }
    return value;
  };
  for (const Node& node : graph.nodes) {
    if (is_layer(node)) {
      for (size_t i = 0; i < 2; ++i) {
        if (graph.find_initializer(node.inputs[i]) == nullptr) values.insert(node.inputs[i]);
      }
    }
    if (is_layer(node) || node.op == "Add") values.insert(end_of(node.outputs[0]));
  }
  return values;
}

/// FakeQuantize on the activations, weights fake-quantized already.
Model simulated(Model model, const TensorMap& inputs, const Scheme& scheme) {
  std::map<std::string, Range> ranges;
  Hooks hooks;
  for (const std::string& value : quantized_values(model.graph)) {
    hooks.observe(value, [&](const std::string& name, std::span<const float> elements) {
      const int64_t shape[] = {std::ssize(elements)};
      const Range range = tile_ranges(elements, Tiling::per_tensor(shape))[0];
      Range& all = ranges[name];
      all = {std::min(all.min, range.min), std::max(all.max, range.max)};
    });
  }
  Engine(model).run(inputs, hooks);

  Graph& graph = model.graph;
  std::map<std::string, std::string> renamed;  // graph inputs
  std::map<std::string, Node> quantizers;      // by the value they read
  for (const auto& [value, range] : ranges) {
    std::string scale, zero;
    if (scheme.is_static) {
      const ScaleZero chosen =
          choose_scale(range, format(scheme.activation.format),
                       scheme.activation.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric);
      scale = value + "/scale";
      graph.initializers.push_back({scale, Tensor::scalar(chosen.scale), {}, {}});
      if (!scheme.activation.symmetric) {
        zero = value + "/zero_point";
        graph.initializers.push_back({zero, Tensor::scalar(chosen.zero_point), {}, {}});
      }
    }
    quantizers.emplace(value, make_fake_quantize(scheme.activation, value + "/float", value, scale, zero));
  }
  std::vector<Node> nodes;
  const auto place = [&](Node node) {
    node.name = node.outputs[0];
    nodes.push_back(std::move(node));
  };
  for (const ValueInfo& input : graph.inputs) {
    const auto it = quantizers.find(input.name);
    if (it == quantizers.end()) continue;
    renamed[input.name] = it->second.outputs[0] = input.name + "/quantized";
    it->second.inputs[0] = input.name;
    place(it->second);
    quantizers.erase(it);
  }
  for (Node& node : graph.nodes) {
    for (std::string& input : node.inputs) {
      if (renamed.contains(input)) input = renamed[input];
    }
    Initializer* weight = is_layer(node) ? graph.find_initializer(node.inputs[1]) : nullptr;
    if (weight != nullptr) {
      TensorSpec spec = scheme.weight;
      const bool transposed = node.op == "MatMul" || node.get_int("transB", 0) == 0;
      if (spec.granularity == Granularity::PerChannel && node.op != "Conv" && transposed) spec.axis = 1;
      std::vector<float> values = weight->tensor.to_float();
      fake_quantize(values, values, weight->tensor.shape(), spec);
      weight->tensor = Tensor::of<float>(weight->tensor.shape(), values);
    }
    const auto it = quantizers.find(node.outputs[0]);
    if (it != quantizers.end()) node.outputs[0] += "/float";
    nodes.push_back(std::move(node));
    if (it != quantizers.end()) place(it->second);
  }
  graph.nodes = std::move(nodes);
  model.opsets[kKaon] = 1;
  return model;
}

Model load(const Subject& subject) {
  return subject.file == nullptr ? make_transformer(12, 768, 12, 128) : read_onnx(fs::path(KAON_MODELS) / subject.file);
}

TensorMap make_inputs(const Subject& subject, const Model& model, int64_t batch) {
  Shape shape = subject.shape;
  shape.insert(shape.begin(), batch);
  const auto count = static_cast<size_t>(element_count(shape));
  const std::string name = model.graph.required_inputs().at(0).name;
  std::mt19937 random(1);
  if (subject.tokens > 0) {
    std::vector<int64_t> ids(count);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % static_cast<uint64_t>(subject.tokens));
    return {{name, Tensor::of<int64_t>(shape, ids)}};
  }
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return {{name, Tensor::of<float>(shape, values)}};
}

double agreement(const Tensor& a, const Tensor& b) {
  ErrorMetrics metrics;
  metrics.update(a.to_float(), b.to_float());
  return metrics.skipped == 0 ? metrics.sqnr_db() : -INFINITY;
}

Work simulation(const Subject& subject, int64_t batch, const Scheme& scheme) {
  const Model model = load(subject);
  const auto inputs = std::make_shared<const TensorMap>(make_inputs(subject, model, batch));
  const auto simulation = std::make_shared<Engine>(simulated(model, *inputs, scheme));
  const auto plain = std::make_shared<Engine>(model);
  Work work;
  work.check = [=] {
    Frame frame = simulation->start(*inputs);
    frame.finish();
    const Tensor planned = simulation->run(*inputs).at(0);
    const double db = agreement(planned, frame.outputs().at(0));
    const double to_float = agreement(planned, plain->run(*inputs).at(0));
    fmt::print(stderr, "{}: plan and interpreter agree to {:.1f} dB, simulation and float to {:.1f} dB\n", subject.name,
               db, to_float);
    if (!(db >= std::min(kLeastDb, to_float - kMarginDb))) {
      fail(ErrorCode::Numeric, subject.name, "plan and interpreter agree to {:.1f} dB only", db);
    }
  };
  work.kaon = [=] { simulation->run(*inputs); };
  work.peer = [=] { plain->run(*inputs); };
  return work;
}

/// What an observed run keeps: the range of every value, or its histogram.
Work observation(const Subject& subject, int64_t batch, bool histogram) {
  struct Session {
    Engine engine;
    TensorMap inputs;
    Hooks hooks;
    std::map<std::string, Range> ranges;
    std::map<std::string, Histogram> histograms;
  };
  auto session = std::make_shared<Session>(Session{Engine(load(subject)), {}, {}, {}, {}});
  session->inputs = make_inputs(subject, session->engine.model(), batch);
  for (const std::string& value : quantized_values(session->engine.model().graph)) {
    session->hooks.observe(
        value, [state = session.get(), histogram](const std::string& name, std::span<const float> elements) {
          if (histogram) {
            state->histograms.try_emplace(name).first->second.update(elements);
            return;
          }
          const int64_t shape[] = {std::ssize(elements)};
          const Range range = tile_ranges(elements, Tiling::per_tensor(shape))[0];
          Range& all = state->ranges[name];
          all = {std::min(all.min, range.min), std::max(all.max, range.max)};
        });
  }
  Work work;
  work.check = [=] {
    const double db = agreement(session->engine.run(session->inputs, session->hooks).at(0),
                                session->engine.run(session->inputs).at(0));
    if (!(db >= 80)) fail(ErrorCode::Numeric, subject.name, "an observed run agrees to {:.1f} dB only", db);
  };
  work.kaon = [=] { session->engine.run(session->inputs, session->hooks); };
  work.peer = [=] { session->engine.run(session->inputs); };
  return work;
}

const bool kAdded = add([](Cases& cases) {
  constexpr const char* kPeer = "float forward";
  for (const Subject& subject : kSubjects) {
    if (subject.file != nullptr && !fs::exists(fs::path(KAON_MODELS) / subject.file)) {
      fmt::print(stderr, "{} left out: no {}\n", subject.name, subject.file);
      continue;
    }
    const bool convolutional = subject.shape.size() == 3;
    for (const Scheme& scheme : kSchemes) {
      if (convolutional && &scheme != kSchemes.data()) continue;
      for (const int64_t batch : subject.batches) {
        cases.push_back({fmt::format("simulate/{}/{}/batch{}", subject.name, scheme.name, batch), kPeer, "ms", 0,
                         kThreads, [=] { return simulation(subject, batch, scheme); }});
      }
    }
    for (const bool histogram : {false, true}) {
      if (!convolutional) continue;
      cases.push_back({fmt::format("observe/{}/{}/batch8", subject.name, histogram ? "histogram" : "min_max"), kPeer,
                       "ms", 0, kThreads, [=] { return observation(subject, 8, histogram); }});
    }
  }
});

}  // namespace

}  // namespace kaon::bench
