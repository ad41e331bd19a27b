#pragma once
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// What decides the shapes of an operator's outputs, beside its attributes.
enum class ShapeSource {
  Unsaid,  ///< nobody said: never planned, as if it followed the data
  Inputs,  ///< the inputs' shapes, and the contents of those in OpFacts::shape_inputs
  Data,    ///< what the data is: NonZero, Loop …
};

/// What sample i of an output, its index i along axis 0, is made of.
enum class Samples {
  Mixed,      ///< other samples too, or nobody said
  First,      ///< sample i of the first input; the other inputs have no samples
  Every,      ///< sample i of every input, and every input has samples
  Broadcast,  ///< sample i of the inputs that have samples, under numpy's broadcasting
};

/// Whether f(s·x) = s·f(x) for every s > 0, x being what data_inputs() names.
enum class Homogeneous {
  No,
  Tensor,    ///< with one s
  Channels,  ///< with an s for each index of axis 1 (channels), which stays axis 1
};

/// What an operator does to numbers that are quantized already.
enum class FlowKind {
  Other,
  Moves,     ///< its outputs hold numbers of its first input and zeros: they stay on its grid
  Computes,  ///< integer runtimes compute it from quantized inputs to a quantized output: Add, Concat, averages …
};

/// A node whose surroundings are known as far as the asker knows them.
struct NodeView {
  const Node& node;
  /// An input's contents, where they are constant.
  std::function<std::optional<Tensor>(size_t input)> constant;
  /// An input's shape.
  std::function<std::optional<Shape>(size_t input)> shape;

  bool has(size_t input) const { return input < node.inputs.size() && !node.inputs[input].empty(); }
  /// Integers that are an input in newer opsets and were an attribute in older ones; nothing where they are not known.
  std::optional<std::vector<int64_t>> ints(const char* attribute, size_t input) const;
  /// ints(), as axes of the first input counted from the front; nothing where its shape is not known either.
  std::optional<std::vector<int64_t>> axes(const char* attribute, size_t input) const;
  /// One axis from an attribute, counted from the front.
  std::optional<int64_t> axis(int64_t given) const;
};

/// What is known about an operator, said where its kernel is registered (ops/*.cpp). Whoever plans, slices or
/// quantizes asks here and keeps no list of operators. What nobody says is taken to be the worst.
struct OpFacts {
  ShapeSource shape = ShapeSource::Unsaid;
  std::vector<size_t> shape_inputs = {};  ///< inputs that decide an output's shape by their contents
  bool reads_shapes = false;              ///< only the shapes of its inputs matter: Shape, Size
  bool ints_are_values = false;           ///< integer attributes may be any number, not only sizes and axes
  bool random = false;                    ///< another result at every run
  bool all_data = false;                  ///< every input carries data, not only the first: Add, Concat
  bool clips = false;                     ///< clamps its first input: Relu, Clip
  Samples samples = Samples::Mixed;
  Homogeneous homogeneous = Homogeneous::No;
  FlowKind flow = FlowKind::Other;
  /// Where attributes or constant inputs decide: takes back, or adds to, what the fields above say.
  std::function<void(const NodeView&, OpFacts&)> refine = nullptr;

  // For registrations: fixed_shape({1}).with(Samples::First)
  OpFacts with(Samples value) && {
    samples = value;
    return std::move(*this);
  }
  OpFacts with(Homogeneous value) && {
    homogeneous = value;
    return std::move(*this);
  }
  OpFacts with(FlowKind value) && {
    flow = value;
    return std::move(*this);
  }
  OpFacts with_all_data() && {
    all_data = true;
    return std::move(*this);
  }
  OpFacts with_any_ints() && {
    ints_are_values = true;
    return std::move(*this);
  }
  OpFacts that_clips() && {
    clips = true;
    return std::move(*this);
  }
  OpFacts where(std::function<void(const NodeView&, OpFacts&)> decide) && {
    refine = std::move(decide);
    return std::move(*this);
  }
};

/// The outputs' shapes follow from the inputs' shapes, the attributes, and the contents of the inputs named.
inline OpFacts fixed_shape(std::vector<size_t> by_contents = {}) {
  return {.shape = ShapeSource::Inputs, .shape_inputs = std::move(by_contents)};
}
/// The outputs' shapes follow from the data.
inline OpFacts data_shape() { return {.shape = ShapeSource::Data}; }
/// Sample i of the outputs comes from sample i of the first input: pointwise functions, convolutions, pooling …
inline OpFacts per_sample() { return fixed_shape().with(Samples::First); }
/// Each element of the output comes from one element of each input, under numpy's broadcasting.
OpFacts broadcasting();
/// Numbers of the first input, placed elsewhere.
inline OpFacts moving(std::vector<size_t> by_contents = {}) {
  return fixed_shape(std::move(by_contents)).with(FlowKind::Moves).with(Homogeneous::Tensor);
}

/// What is known about `node`; an operator that the engine does not have has no facts.
OpFacts facts_of(const NodeView& node);
/// Likewise, with what the graph's initializers and value infos tell.
OpFacts facts_of(const Node& node, const Graph& graph);
/// The inputs of `node` that carry data, not shapes or axes.
std::vector<std::string> data_inputs(const Node& node, const OpFacts& facts);

/// Every operator that the engine runs: (domain, name), sorted.
std::vector<std::pair<std::string, std::string>> operator_names();

}  // namespace kaon
