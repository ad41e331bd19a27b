#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "numerics/format.h"

namespace kaon {

/// One row of `kaon formats`; a field that does not apply to the format is empty.
struct FormatInfo {
  std::string name;
  int bits = 0;      ///< of one element, without its share of a block's scale
  std::string kind;  ///< integer, float or block
  double min = 0;    ///< min, max and smallest (positive) value, at scale 1
  double max = 0;
  double smallest = 0;
  std::optional<int> exponent_bits;  ///< of a float, or of a block's float elements; so are mantissa_bits and bias
  std::optional<int> mantissa_bits;
  std::optional<int> bias;
  std::optional<std::string> element;  ///< the format of a block's elements
  std::optional<int> block;            ///< elements that share a scale
  std::optional<std::string> scale;    ///< how a block's scale is stored
  std::optional<int> onnx_type;        ///< TensorProto.DataType
};

/// Every registered format, in the registry's order.
std::vector<FormatInfo> list_formats();

nlohmann::ordered_json to_json(const std::vector<FormatInfo>& formats);

}  // namespace kaon
