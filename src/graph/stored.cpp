#include "graph/stored.h"

#include <algorithm>

#include "base/error.h"

namespace kaon {
namespace {

/// The Cast to float32 that makes `value`, or the end.
template <typename Nodes>
auto widening_cast(Nodes& nodes, const std::string& value) {
  return std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) {
    return node.op == "Cast" && node.domain.empty() && node.inputs.size() == 1 && node.outputs.size() == 1 &&
           node.outputs[0] == value && node.get_int("to", 0) == static_cast<int64_t>(DType::Float32);
  });
}

}  // namespace

bool is_half(DType type) { return type == DType::Float16 || type == DType::BFloat16; }

bool is_float(const Tensor& tensor) { return tensor.type() == DType::Float32 || is_half(tensor.type()); }

FloatView float_view(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::Float32: return {tensor.bytes().data(), tensor.size(), FloatView::Type::Float32};
    case DType::Float16: return {tensor.bytes().data(), tensor.size(), FloatView::Type::Float16};
    case DType::BFloat16: return {tensor.bytes().data(), tensor.size(), FloatView::Type::BFloat16};
    default: break;
  }
  fail(ErrorCode::InvalidInput, to_string(tensor.shape()), "a {} tensor where float32, float16 or bfloat16 is needed",
       name_of(tensor.type()));
}

Tensor widened(const Tensor& tensor) {
  return is_half(tensor.type()) ? Tensor::of(tensor.shape(), tensor.to_float()) : tensor;
}

const Initializer* find_stored(const Graph& graph, const std::string& value) {
  if (const Initializer* initializer = graph.find_initializer(value)) return initializer;
  const auto cast = widening_cast(graph.nodes, value);
  if (cast == graph.nodes.end()) return nullptr;
  const Initializer* stored = graph.find_initializer(cast->inputs[0]);
  return stored != nullptr && is_half(stored->tensor.type()) ? stored : nullptr;
}

void store(Graph& graph, const std::string& value, Tensor tensor) {
  if (Initializer* initializer = graph.find_initializer(value)) {
    initializer->tensor = std::move(tensor);
    return;
  }
  graph.nodes.erase(widening_cast(graph.nodes, value));
  graph.initializers.push_back({value, std::move(tensor), {}, {}});
}

}  // namespace kaon
