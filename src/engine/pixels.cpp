#include "engine/pixels.h"

namespace kaon {

Pixels Pixels::row_major(const float* data, Shape shape) {
  Pixels pixels{.data = data, .shape = std::move(shape)};
  pixels.block_stride = element_count(std::span(pixels.shape).subspan(2));
  pixels.sample_stride = pixels.shape[1] * pixels.block_stride;
  return pixels;
}

void PixelWatcher::operator()(const Shown& shown) const {
  see(Pixels::row_major(shown.tensor.as<float>().data(), shown.tensor.shape()), shown.first);
}

}  // namespace kaon
