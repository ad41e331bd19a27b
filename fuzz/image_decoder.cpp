// Any bytes give an image or a kaon::Error; an image can be resized.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "data/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const int64_t channels : {1, 3}) {
    try {
      const kaon::Image image = kaon::decode_image(std::as_bytes(std::span(data, size)), channels, "image");
      if (std::ssize(image.pixels) != image.width * image.height * channels) std::abort();
      kaon::resize_image(image, 7, 11, {0, 0, 7, 11});
    } catch (const kaon::Error&) {
    }
  }
  return 0;
}
