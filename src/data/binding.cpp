#include "data/binding.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "graph/describe.h"
#include "numerics/quantize.h"

namespace kaon {

namespace {

bool is_float(DType type) {
  return type == DType::Float16 || type == DType::BFloat16 || type == DType::Float32 || type == DType::Float64;
}

bool is_small_integer(DType type) {
  return type == DType::Bool || type == DType::Int8 || type == DType::UInt8 || type == DType::Int16 ||
         type == DType::UInt16;
}

/// "?" for -1.
std::string describe_sample(const Shape& sample) {
  std::string text = "[N";
  for (const int64_t dim : sample) text += dim < 0 ? ", ?" : fmt::format(", {}", dim);
  return text + "]";
}

template <typename To, typename From>
Tensor cast_values(const Tensor& tensor, const std::vector<From>& values) {
  return Tensor::of<To>(tensor.shape(), std::vector<To>(values.begin(), values.end()));
}

Tensor round_to_half(const Tensor& tensor, DType to) {
  const std::vector<float> values = tensor.to_float();
  const Format& format = formats().get(to == DType::Float16 ? "float16" : "bfloat16");
  std::vector<std::byte> codes(values.size() * 2);
  // Inf where the value is too large, as every other cast does.
  quantize(std::span(values), codes, format, {Tiling::per_tensor(tensor.shape()), {1.0F}, {}}, {.saturate = false});
  return Tensor::copy_bytes(to, tensor.shape(), codes);
}

}  // namespace

const ValueInfo& find_input(const std::vector<ValueInfo>& inputs, const std::string& name, const std::string& where) {
  if (name.empty()) {
    if (inputs.size() == 1) return inputs.front();
    fail(ErrorCode::InvalidInput, where, "holds one array, but the model takes {}",
         inputs.empty() ? "no inputs" : describe(inputs));
  }
  const auto found = std::ranges::find(inputs, name, &ValueInfo::name);
  if (found != inputs.end()) return *found;
  fail(ErrorCode::InvalidInput, where, "the model has no input '{}'; it takes {}", name, describe(inputs));
}

bool converts(DType from, DType to) {
  if (from == to) return true;
  if (is_float(to)) return is_float(from) || is_small_integer(from);
  if (to == DType::Int32) return is_small_integer(from);
  if (to == DType::Int64) return is_small_integer(from) || from == DType::Int32 || from == DType::UInt32;
  return false;
}

Tensor convert(const Tensor& tensor, DType to) {
  if (tensor.type() == to) return tensor;
  switch (to) {
    case DType::Int64: return cast_values<int64_t>(tensor, tensor.to_int64());
    case DType::Int32: return cast_values<int32_t>(tensor, tensor.to_int64());
    case DType::Float32: return Tensor::of<float>(tensor.shape(), tensor.to_float());
    case DType::Float64: return cast_values<double>(tensor, tensor.to_float());
    case DType::Float16:
    case DType::BFloat16: return round_to_half(tensor, to);
    default: break;
  }
  fail(ErrorCode::Internal, std::string(name_of(to)), "no conversion from {}", name_of(tensor.type()));
}

DType check_fits(DType type, const Shape& sample, const ValueInfo& input, const std::string& where,
                 const std::string& what) {
  const std::string wanted = fmt::format("the model's input '{}' is {}", input.name, describe(input));
  const DType to = input.type == DType::Undefined ? type : input.type;
  if (!converts(type, to)) fail(ErrorCode::InvalidInput, where, "{} is {}, but {}", what, name_of(type), wanted);
  if (!input.shape) return to;
  const std::vector<Dim>& dims = *input.shape;
  bool fits = dims.size() == sample.size() + 1;
  for (size_t i = 0; fits && i < sample.size(); ++i) {
    fits = sample[i] < 0 || !dims[i + 1].value || *dims[i + 1].value == sample[i];
  }
  if (!fits) {
    fail(ErrorCode::InvalidInput, where, "{} is {} with N samples along the first axis, but {}", what,
         describe_sample(sample), wanted);
  }
  return to;
}

Tensor slice_samples(const Tensor& tensor, int64_t first, int64_t count) {
  Shape shape = tensor.shape();
  const int64_t each = tensor.size() / std::max<int64_t>(shape.at(0), 1);
  shape[0] = count;
  if (tensor.type() == DType::String) {
    const auto begin = tensor.strings().begin() + first * each;
    return Tensor::of_strings(std::move(shape), {begin, begin + count * each});
  }
  return {tensor.type(), std::move(shape), tensor.owner(),
          tensor.bytes().data() + stored_bytes(tensor.type(), first * each)};
}

Selection select_samples(int64_t total, int64_t first, int64_t limit, const DatasetOptions& options,
                         const std::string& where) {
  if (options.limit < 0) fail(ErrorCode::InvalidInput, where, "a limit of {} samples; it counts from 1", options.limit);
  if (total <= 0) fail(ErrorCode::InvalidInput, where, "holds no samples");
  if (first >= total) {
    fail(ErrorCode::InvalidInput, where, "\"first\" is {}, but there are only {} samples", first, total);
  }
  const int64_t most = options.limit > 0 ? options.limit : limit;
  const int64_t left = total - first;
  return {first, most > 0 ? std::min(most, left) : left};
}

void check_range(int64_t first, int64_t count, int64_t size) {
  if (first < 0 || count < 0 || first > size || count > size - first) {
    fail(ErrorCode::InvalidInput, "dataset", "{} samples from {} on do not lie in its {}", count, first, size);
  }
}

}  // namespace kaon
