#include "nn/builder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "numerics/random.h"

namespace kaon::nn {

namespace {

constexpr int64_t kOpset = 17;
constexpr float kBatchNormMomentum = 0.9F;  // of the old value, as ONNX counts

/// "layer1.0.conv1" -> "/layer1/0/conv1"
std::string node_path(const std::string& layer) {
  std::string path = "/" + layer;
  std::ranges::replace(path, '.', '/');
  return path;
}

ValueInfo with_batch(const std::string& name, const Shape& sample) {
  ValueInfo info;
  info.name = name;
  info.type = DType::Float32;
  info.shape.emplace();
  info.shape->push_back({std::nullopt, "batch"});
  for (const int64_t dim : sample) info.shape->push_back({dim, {}});
  return info;
}

std::vector<int64_t> twice(int64_t value) { return {value, value}; }
std::vector<int64_t> four_times(int64_t value) { return {value, value, value, value}; }

}  // namespace

Network::Network(Shape sample, uint64_t seed) : shape_(std::move(sample)), seed_(seed) {
  graph_.name = "network";
  graph_.inputs.push_back(with_batch(value_, shape_));
}

Network& Network::normalize(float mean, float deviation) {
  if (!(deviation > 0)) fail(ErrorCode::InvalidConfig, prefix_ + "normalize", "deviation {} is not above 0", deviation);
  const std::string layer = prefix_ + "normalize";
  add(layer, "Sub", {value_, constant(layer + ".mean", mean)}, shape_);
  add(layer, "Div", {value_, constant(layer + ".deviation", deviation)}, shape_);
  return *this;
}

Network& Network::linear(const std::string& name, int64_t outputs) {
  const std::string layer = prefix_ + name;
  require_rank(layer, 1);
  if (outputs < 1) fail(ErrorCode::InvalidConfig, layer, "{} outputs; at least 1 is needed", outputs);
  const int64_t inputs = shape_[0];
  const std::string weight = uniform(layer + ".weight", {outputs, inputs}, inputs);
  const std::string bias = uniform(layer + ".bias", {outputs}, inputs);
  add(layer, "Gemm", {value_, weight, bias}, {outputs}, {{"transB", int64_t{1}, {}}});
  return *this;
}

Network& Network::conv(const std::string& name, int64_t channels, const ConvOptions& options) {
  const std::string layer = prefix_ + name;
  require_rank(layer, 3);
  const int64_t groups = options.groups;
  if (channels < 1 || groups < 1 || shape_[0] % groups != 0 || channels % groups != 0) {
    fail(ErrorCode::InvalidConfig, layer, "{} groups do not divide {} input and {} output channels", groups, shape_[0],
         channels);
  }
  const auto size = [&](size_t axis) {
    return windows(layer, shape_[axis], options.kernel, options.stride, options.padding);
  };
  const Shape shape{channels, size(1), size(2)};
  const Shape weight{channels, shape_[0] / groups, options.kernel, options.kernel};
  const int64_t fan_in = weight[1] * weight[2] * weight[3];
  std::vector<std::string> inputs{value_, uniform(layer + ".weight", weight, fan_in)};
  if (options.bias) inputs.push_back(uniform(layer + ".bias", {channels}, fan_in));
  add(layer, "Conv", std::move(inputs), shape,
      {{"group", groups, {}},
       {"kernel_shape", twice(options.kernel), {}},
       {"pads", four_times(options.padding), {}},
       {"strides", twice(options.stride), {}}});
  return *this;
}

Network& Network::batch_norm(const std::string& name, float epsilon) {
  const std::string layer = prefix_ + name;
  const Shape channels{shape_.at(0)};
  std::vector<std::string> inputs{value_, fill(layer + ".weight", channels, 1), fill(layer + ".bias", channels, 0),
                                  fill(layer + ".running_mean", channels, 0),
                                  fill(layer + ".running_var", channels, 1)};
  add(layer, "BatchNormalization", std::move(inputs), shape_,
      {{"epsilon", epsilon, {}}, {"momentum", kBatchNormMomentum, {}}});
  return *this;
}

Network& Network::relu() {
  add(prefix_ + "relu", "Relu", {value_}, shape_);
  return *this;
}

Network& Network::relu6() {
  const std::string layer = prefix_ + "relu6";
  const std::string least = constant(layer + ".min", 0), most = constant(layer + ".max", 6);
  add(layer, "Clip", {value_, least, most}, shape_);
  return *this;
}

Network& Network::max_pool(const PoolOptions& options) {
  const std::string layer = prefix_ + "max_pool";
  require_rank(layer, 3);
  const auto size = [&](size_t axis) {
    return windows(layer, shape_[axis], options.kernel, options.stride, options.padding);
  };
  add(layer, "MaxPool", {value_}, {shape_[0], size(1), size(2)},
      {{"kernel_shape", twice(options.kernel), {}},
       {"pads", four_times(options.padding), {}},
       {"strides", twice(options.stride), {}}});
  return *this;
}

Network& Network::global_average_pool() {
  const std::string layer = prefix_ + "avgpool";
  require_rank(layer, 3);
  add(layer, "GlobalAveragePool", {value_}, {shape_[0], 1, 1});
  return *this;
}

Network& Network::flatten() {
  add(prefix_ + "flatten", "Flatten", {value_}, {element_count(shape_)});
  return *this;
}

Network& Network::block(const std::string& name, const Body& body) {
  const std::string outer = prefix_;
  prefix_ += name + ".";
  body(*this);
  prefix_ = outer;
  return *this;
}

Network& Network::residual(const std::string& name, const Body& body, const Body& shortcut) {
  return block(name, [&](Network& net) {
    const std::string before = value_;
    const Shape shape = shape_;
    body(net);
    const std::string branch = value_;
    const Shape branch_shape = shape_;
    value_ = before;
    shape_ = shape;
    if (shortcut != nullptr) shortcut(net);
    if (shape_ != branch_shape) {
      fail(ErrorCode::InvalidConfig, prefix_ + "add", "the body gives {}, the shortcut {}; they must be alike",
           to_string(branch_shape), to_string(shape_));
    }
    add(prefix_ + "add", "Add", {branch, value_}, shape_);
  });
}

Model Network::model() const {
  if (graph_.nodes.empty()) fail(ErrorCode::InvalidConfig, "network", "it has no layers");
  Model model;
  model.opsets[""] = kOpset;
  model.producer_name = "kaon";
  model.graph = graph_;
  model.graph.nodes.back().outputs = {"output"};
  model.graph.outputs.push_back(with_batch("output", shape_));
  return model;
}

void Network::add(const std::string& layer, const std::string& op, std::vector<std::string> inputs, Shape shape,
                  std::vector<Attribute> attributes) {
  // Layers without a name of their own are counted: relu, relu_1, relu_2 …
  std::string name = node_path(layer) + "/" + op;
  for (int number = 1; std::ranges::find(graph_.nodes, name, &Node::name) != graph_.nodes.end(); ++number) {
    name = fmt::format("{}_{}/{}", node_path(layer), number, op);
  }
  value_ = name + "_output_0";
  Node node;
  node.name = name;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {value_};
  node.attributes = std::move(attributes);
  graph_.nodes.push_back(std::move(node));
  shape_ = std::move(shape);
}

std::string Network::constant(const std::string& layer, float value) {
  Node node;
  node.op = "Constant";
  node.outputs = {graph_.fresh_name(node_path(layer))};
  node.name = node.outputs[0];
  node.attributes = {{"value", Tensor::scalar(value), {}}};
  graph_.nodes.push_back(node);
  return node.outputs[0];
}

std::string Network::fill(const std::string& name, const Shape& shape, float value) {
  add_initializer(name, Tensor::of<float>(shape, std::vector<float>(static_cast<size_t>(element_count(shape)), value)));
  return name;
}

std::string Network::uniform(const std::string& name, const Shape& shape, int64_t fan_in) {
  // Each parameter draws from a stream of its own.
  const uint64_t stream = seed_ + (static_cast<uint64_t>(graph_.initializers.size()) << 32);
  const float bound = 1 / std::sqrt(static_cast<float>(fan_in));
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = bound * (2 * random_unit(stream, i) - 1);
  add_initializer(name, Tensor::of<float>(shape, values));
  return name;
}

void Network::add_initializer(const std::string& name, Tensor tensor) {
  if (graph_.find_initializer(name) != nullptr) {
    fail(ErrorCode::InvalidConfig, name,
         "a second parameter of this name; layers with parameters need names of their own");
  }
  graph_.initializers.push_back({name, std::move(tensor), {}, {}});
}

void Network::require_rank(const std::string& layer, int64_t rank) const {
  if (std::ssize(shape_) == rank) return;
  fail(ErrorCode::InvalidConfig, layer, "takes samples of {}, but they come as {}",
       rank == 1 ? "one axis (see flatten)" : "the axes channels, height and width", to_string(shape_));
}

int64_t Network::windows(const std::string& layer, int64_t size, int64_t kernel, int64_t stride,
                         int64_t padding) const {
  if (kernel < 1 || stride < 1 || padding < 0 || size + 2 * padding < kernel) {
    fail(ErrorCode::InvalidConfig, layer, "kernel {}, stride {} and padding {} do not fit a side of {}", kernel, stride,
         padding, size);
  }
  return (size + 2 * padding - kernel) / stride + 1;
}

}  // namespace kaon::nn
