#pragma once
#include <optional>
#include <string>

#include "graph/graph.h"
#include "numerics/tensor_spec.h"

namespace kaon {

/// Kaon's own operators, for graphs in memory; no other runtime knows them.
inline constexpr const char* kKaon = "kaon";

/// Kaon's FakeQuantize: x -> quantized and dequantized x, float32.
///   inputs   x; scale (float32, one number for each tile, row-major); zero_point (int32, likewise, "" = 0)
///   without a scale the parameters follow from x at every run
///   attributes: the fields of TensorSpec that are not at their default, by their names
Node make_fake_quantize(const TensorSpec& spec, std::string input, std::string output, std::string scale = "",
                        std::string zero_point = "");

bool is_fake_quantize(const Node& node);

/// What make_fake_quantize wrote; throws InvalidInput naming the node where an attribute makes no sense.
TensorSpec fake_quantize_spec(const Node& node);

}  // namespace kaon
