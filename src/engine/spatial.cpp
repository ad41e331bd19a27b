#include "engine/spatial.h"

#include <algorithm>

#include "base/error.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

AutoPad auto_pad(const Node& node) {
  const std::string name = node.get_string("auto_pad", "NOTSET");
  if (name == "NOTSET" || name.empty()) return AutoPad::NotSet;
  if (name == "VALID") return AutoPad::Valid;
  if (name == "SAME_UPPER") return AutoPad::SameUpper;
  if (name == "SAME_LOWER") return AutoPad::SameLower;
  fail(ErrorCode::Unsupported, node.label(), "auto_pad '{}'; NOTSET, VALID, SAME_UPPER and SAME_LOWER are known", name);
}

}  // namespace

WindowAttributes window_attributes(const Node& node) {
  return {node.get_ints("kernel_shape"), node.get_ints("strides"), node.get_ints("dilations"),
          node.get_ints("pads"),         auto_pad(node),           node.get_int("ceil_mode", 0) != 0};
}

std::vector<int64_t> positive_or_ones(std::vector<int64_t> values, size_t rank, const char* name) {
  if (values.empty()) values.assign(rank, 1);
  if (values.size() != rank || std::any_of(values.begin(), values.end(), [](int64_t value) { return value < 1; })) {
    fail(ErrorCode::InvalidInput, name, "{} must give one positive number for each of {} spatial axes",
         to_string(values), rank);
  }
  return values;
}

SlidingWindow slide(const WindowAttributes& attributes, at::IntArrayRef input, std::vector<int64_t> kernel) {
  if (input.size() < 3) {
    fail(ErrorCode::InvalidInput, "input 0", "its shape {} must be [batch, channels, spatial axes]", to_string(input));
  }
  SlidingWindow window;
  window.input = input.slice(2).vec();
  const size_t rank = window.input.size();
  if (kernel.size() != rank) {
    fail(ErrorCode::InvalidInput, "kernel_shape", "{} does not fit the {} spatial axes of an input {}",
         to_string(kernel), rank, to_string(input));
  }
  window.kernel = positive_or_ones(std::move(kernel), rank, "kernel_shape");
  window.strides = positive_or_ones(attributes.strides, rank, "strides");
  window.dilations = positive_or_ones(attributes.dilations, rank, "dilations");
  window.begin.assign(rank, 0);
  window.end.assign(rank, 0);
  window.output.resize(rank);
  if (attributes.auto_pad == AutoPad::NotSet && !attributes.pads.empty()) {
    if (attributes.pads.size() != 2 * rank) {
      fail(ErrorCode::InvalidInput, "pads", "{} does not give two numbers for each of {} spatial axes",
           to_string(attributes.pads), rank);
    }
    const auto middle = attributes.pads.begin() + static_cast<int64_t>(rank);
    window.begin.assign(attributes.pads.begin(), middle);
    window.end.assign(middle, attributes.pads.end());
  }
  for (size_t i = 0; i < rank; ++i) {
    const int64_t stride = window.strides[i];
    if (attributes.auto_pad == AutoPad::SameUpper || attributes.auto_pad == AutoPad::SameLower) {
      const int64_t wanted = (window.input[i] + stride - 1) / stride;
      const int64_t total = std::max<int64_t>(0, (wanted - 1) * stride + window.reach(i) - window.input[i]);
      window.begin[i] = attributes.auto_pad == AutoPad::SameUpper ? total / 2 : total - total / 2;
      window.end[i] = total - window.begin[i];
    }
    const int64_t room = window.input[i] + window.begin[i] + window.end[i] - window.reach(i);
    if (room < 0) {
      fail(ErrorCode::InvalidInput, "kernel_shape", "a window over {} elements is wider than the padded input of {}",
           window.reach(i), window.input[i] + window.begin[i] + window.end[i]);
    }
    window.output[i] = (attributes.ceil ? room + stride - 1 : room) / stride + 1;
    // A last window that would start in the end padding does not count.
    if (attributes.ceil && (window.output[i] - 1) * stride >= window.input[i] + window.begin[i]) --window.output[i];
  }
  return window;
}

at::Tensor pad_spatial(const at::Tensor& x, at::IntArrayRef begin, at::IntArrayRef end, const at::Scalar& value) {
  std::vector<int64_t> pads;
  for (size_t i = begin.size(); i-- > 0;) pads.insert(pads.end(), {begin[i], end[i]});
  if (std::all_of(pads.begin(), pads.end(), [](int64_t pad) { return pad == 0; })) return x;
  return at::constant_pad_nd(x, pads, value);
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    const WindowAttributes& attributes, int64_t groups, bool shape_only) {
  if (weight.dim() < 3) fail(ErrorCode::InvalidInput, "input 1", "its rank is {}, at least 3 is needed", weight.dim());
  const SlidingWindow window = slide(attributes, x.sizes(), weight.sizes().slice(2).vec());
  if (x.size(1) != weight.size(1) * groups || weight.size(0) % groups != 0) {
    fail(ErrorCode::InvalidInput, "input 1", "a weight {} in {} groups does not fit the input {}",
         to_string(weight.sizes()), groups, to_string(x.sizes()));
  }
  if (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0))) {
    fail(ErrorCode::InvalidInput, "input 2", "a bias {} does not fit the weight {}", to_string(bias.sizes()),
         to_string(weight.sizes()));
  }
  std::vector<int64_t> shape{x.size(0), weight.size(0)};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  require_room(shape, static_cast<int64_t>(x.element_size()));
  if (shape_only) return at::zeros({}, x.options()).expand(shape);
  const std::vector<int64_t> zeros(window.rank(), 0);
  const bool native =
      window.symmetric() && std::all_of(window.begin.begin(), window.begin.end(), [](int64_t pad) { return pad >= 0; });
  return at::convolution(native ? x : pad_spatial(x, window.begin, window.end, 0), weight, bias, window.strides,
                         native ? window.begin : zeros, window.dilations, /*transposed=*/false, zeros, groups);
}

}  // namespace kaon
