#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "graph/graph.h"

namespace kaon::nn {

struct ConvOptions {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 0;
  int64_t groups = 1;
  bool bias = true;
};

struct PoolOptions {
  int64_t kernel = 2;
  int64_t stride = 2;
  int64_t padding = 0;
};

/// Builds a small network as a Model, layer after layer:
///
///   nn::Network net({1, 28, 28}, seed);
///   net.flatten().linear("fc1", 512).relu().linear("fc2", 10);
///   Model model = net.model();
///
/// Parameters are initializers named as PyTorch names them ("fc1.weight", "bn1.running_mean"); plain constants are
/// Constant nodes. Weights and biases start uniform in ±1/√fan_in, PyTorch's default, from `seed` alone: the same on
/// every machine. A layer that does not fit what stands before it throws InvalidConfig naming it.
class Network {
 public:
  using Body = std::function<void(Network&)>;

  /// `sample` is the shape of one sample; the model's input gets a batch axis before it.
  explicit Network(Shape sample, uint64_t seed = 0);

  /// (x − mean) / deviation
  Network& normalize(float mean, float deviation);
  Network& linear(const std::string& name, int64_t outputs);
  Network& conv(const std::string& name, int64_t channels, const ConvOptions& options = {});
  Network& batch_norm(const std::string& name, float epsilon = 1e-5F);
  Network& relu();
  /// Between 0 and 6.
  Network& relu6();
  Network& max_pool(const PoolOptions& options = {});
  Network& global_average_pool();
  Network& flatten();

  /// What `body` adds, its names after "name.".
  Network& block(const std::string& name, const Body& body);
  /// body(x) + shortcut(x), named as in a block; without a shortcut, x itself.
  Network& residual(const std::string& name, const Body& body, const Body& shortcut = nullptr);

  /// The shape of a sample as it comes out of the last layer.
  const Shape& shape() const { return shape_; }
  /// Input "input", output "output", both with a free batch axis.
  Model model() const;

 private:
  void add(const std::string& layer, const std::string& op, std::vector<std::string> inputs, Shape shape,
           std::vector<Attribute> attributes = {});
  std::string constant(const std::string& layer, float value);
  std::string fill(const std::string& name, const Shape& shape, float value);
  std::string uniform(const std::string& name, const Shape& shape, int64_t fan_in);
  void add_initializer(const std::string& name, Tensor tensor);
  void require_rank(const std::string& layer, int64_t rank) const;
  int64_t windows(const std::string& layer, int64_t size, int64_t kernel, int64_t stride, int64_t padding) const;

  Graph graph_;
  Shape shape_;
  std::string value_ = "input";  ///< what the next layer reads
  std::string prefix_;
  uint64_t seed_;
};

}  // namespace kaon::nn
