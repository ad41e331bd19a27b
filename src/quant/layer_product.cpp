#include "quant/layer_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/node_id.h"
#include "graph/stored.h"

namespace kaon {
namespace {

LayerProduct refuse(std::string reason) {
  LayerProduct product;
  product.refused = std::move(reason);
  return product;
}

/// The entries of an attribute with one number for each spatial axis, behind the axes that are missing.
void fill(std::span<int64_t> to, const std::vector<int64_t>& from) {
  if (from.size() <= to.size()) std::copy_backward(from.begin(), from.end(), to.data() + to.size());
}

LayerProduct convolution_of(const Node& node, const Layer& layer) {
  const Shape& shape = layer.weight_shape;
  if (layer.op != "Conv") return refuse("transposed convolutions are not looked into");
  if (shape.size() > 4) return refuse("convolutions of three axes are not looked into");
  LayerProduct product;
  product.convolution = true;
  product.groups = node.get_int("group", 1);
  if (product.groups < 1 || shape[0] % product.groups != 0) return refuse("its groups do not divide the outputs");
  product.rows = shape[0] / product.groups;
  product.cols = element_count(std::span(shape).subspan(1));
  fill(product.kernel, {shape.begin() + 2, shape.end()});
  fill(product.strides, node.get_ints("strides"));
  fill(product.dilations, node.get_ints("dilations"));
  const std::vector<int64_t> pads = node.get_ints("pads");
  const size_t axes = shape.size() - 2;
  if (pads.size() == 2 * axes) {
    fill(std::span(product.pads).first(2), {pads.begin(), pads.begin() + static_cast<int64_t>(axes)});
    fill(std::span(product.pads).last(2), {pads.begin() + static_cast<int64_t>(axes), pads.end()});
  }
  const std::string auto_pad = node.get_string("auto_pad", "NOTSET");
  if (auto_pad.starts_with("SAME")) product.auto_pad = auto_pad;
  return product;
}

LayerProduct matrix_of(const Node& node, const Layer& layer) {
  if (layer.op != "Gemm" && layer.op != "MatMul") return refuse(fmt::format("{} multiplies nothing", layer.op));
  if (layer.weight_input != 1) return refuse("its weight is the left factor");
  if (layer.weight_shape.size() != 2) return refuse("its weight has more than two axes");
  if (node.get_int("transA", 0) != 0) return refuse("it transposes what it reads");
  LayerProduct product;
  product.cols_first = node.get_int("transB", 0) == 0;
  product.rows = layer.weight_shape[product.cols_first ? 1 : 0];
  product.cols = layer.weight_shape[product.cols_first ? 0 : 1];
  return product;
}

}  // namespace

LayerProduct product_of(const Graph& graph, const Layer& layer) {
  const Initializer* weight = find_stored(graph, layer.weight);
  if (weight == nullptr || !is_float(weight->tensor)) return refuse("its weight is no float constant");
  if (layer.inner != nullptr) return refuse("it lies inside a subgraph");
  const Node& node = node_by_id(graph, layer.node);
  LayerProduct product = is_convolution(layer) ? convolution_of(node, layer) : matrix_of(node, layer);
  if (product.cols > kMostColumns) {
    return refuse(fmt::format("it multiplies {} numbers at once, more than {}", product.cols, kMostColumns));
  }
  if (product.refused.empty() && product.all_rows() * product.cols == 0) return refuse("its weight is empty");
  return product;
}

}  // namespace kaon
