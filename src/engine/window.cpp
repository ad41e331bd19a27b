#include "engine/window.h"

#include <algorithm>

#include "base/error.h"

namespace kaon {

Window Window::of(const Node& node, const Shape& input, Shape kernel) {
  const size_t rank = kernel.size();
  Window window;
  window.strides = node.get_ints("strides", Shape(rank, 1));
  window.dilations = node.get_ints("dilations", Shape(rank, 1));
  const Shape pads = node.get_ints("pads", Shape(2 * rank, 0));
  if (input.size() != rank + 2 || window.strides.size() != rank || window.dilations.size() != rank || pads.size() != 2 * rank) {
    fail(ErrorCode::InvalidInput, node.label(), "kernel {}, strides {}, dilations {} and pads {} do not fit the input {}",
         to_string(kernel), to_string(window.strides), to_string(window.dilations), to_string(pads), to_string(input));
  }
  window.pads_begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
  window.pads_end.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  for (size_t i = 0; i < rank && automatic != "NOTSET"; ++i) {
    window.pads_begin[i] = window.pads_end[i] = 0;
    if (automatic == "VALID") continue;
    const int64_t size = input[i + 2];
    const int64_t steps = (size + window.strides[i] - 1) / window.strides[i];
    const int64_t reach = (kernel[i] - 1) * window.dilations[i] + 1;
    const int64_t total = std::max<int64_t>(0, (steps - 1) * window.strides[i] + reach - size);
    window.pads_begin[i] = automatic == "SAME_LOWER" ? total - total / 2 : total / 2;
    window.pads_end[i] = total - window.pads_begin[i];
  }
  window.kernel = std::move(kernel);
  return window;
}

}  // namespace kaon
