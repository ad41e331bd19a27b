#pragma once
#include <vector>

#include "engine/aten.h"
#include "graph/graph.h"

namespace kaon {

enum class AutoPad { NotSet, Valid, SameUpper, SameLower };

/// What convolutions and pools say of their sliding window.
struct WindowAttributes {
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> pads;  ///< begins, then ends
  AutoPad auto_pad = AutoPad::NotSet;
  bool ceil = false;
};

/// Throws Unsupported for an auto_pad that ONNX does not define.
WindowAttributes window_attributes(const Node& node);

/// The window over one input: all vectors have one entry for each spatial axis.
struct SlidingWindow {
  std::vector<int64_t> input;
  std::vector<int64_t> kernel;
  std::vector<int64_t> strides;
  std::vector<int64_t> dilations;
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  std::vector<int64_t> output;

  size_t rank() const { return input.size(); }
  /// Elements from the first to the last that one position of the window sees.
  int64_t reach(size_t axis) const { return dilations[axis] * (kernel[axis] - 1) + 1; }
  bool symmetric() const { return begin == end; }
};

/// Resolves pads and output sizes for an input [N, C, spatial…]. `kernel` is that of the weight, or the attribute's.
SlidingWindow slide(const WindowAttributes& attributes, at::IntArrayRef input, std::vector<int64_t> kernel);

/// `values` checked to have `rank` positive entries; all ones when empty.
std::vector<int64_t> positive_or_ones(std::vector<int64_t> values, size_t rank, const char* name);

/// Pads the last axes; negative pads cut.
at::Tensor pad_spatial(const at::Tensor& x, at::IntArrayRef begin, at::IntArrayRef end, const at::Scalar& value);

/// A convolution of any of 1 to 3 spatial axes with pads that may differ at both ends. `bias` may be undefined. The
/// result is 0 with `shape_only`.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                    const WindowAttributes& attributes, int64_t groups, bool shape_only = false);

}  // namespace kaon
