#pragma once
#include <functional>

#include "engine/engine.h"

namespace kaon {

/// A float32 value [samples, channels, positions …] as it lies in memory, whatever layout a plan has chosen for it:
/// channel c at a position is element c % block of what lies at
/// sample · sample_stride + c / block · block_stride + position · position_stride.
struct Pixels {
  const float* data = nullptr;
  Shape shape;        ///< logical, row-major
  int64_t block = 1;  ///< channels that lie side by side at each position
  int64_t sample_stride = 0;
  int64_t block_stride = 0;
  int64_t position_stride = 1;

  static Pixels row_major(const float* data, Shape shape);
};

/// To be given to Hooks::watch_tensor: plans know it by its type and show it a value of three or more axes where it
/// lies, without bringing it into row-major form. For those who look at few of its positions.
struct PixelWatcher {
  /// Samples from `first` of the batch on.
  std::function<void(const Pixels& pixels, int64_t first)> see;

  void operator()(const Shown& shown) const;
};

}  // namespace kaon
