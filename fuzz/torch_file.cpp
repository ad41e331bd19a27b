// Any bytes give tensors or a kaon::Error, as a file of torch.save and as the pickle inside one.
#include <cstdint>
#include <fstream>
#include <span>

#include "base/error.h"
#include "data/pickle.h"
#include "data/sources.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile kScratch;
  volatile uint8_t sum = 0;
  auto bytes = std::as_bytes(std::span(data, size));
  std::ofstream(kScratch.path(), std::ios::binary).write(reinterpret_cast<const char*>(data), std::streamsize(size));
  try {
    for (const auto& [name, tensor] : kaon::read_torch_file(kScratch.path())) {
      // Touches every byte that a tensor claims.
      for (const std::byte byte : tensor.bytes()) sum = static_cast<uint8_t>(sum + std::to_integer<uint8_t>(byte));
    }
  } catch (const kaon::Error&) {
  }
  try {
    kaon::read_pickle(bytes, "pickle");
  } catch (const kaon::Error&) {
  }
  return 0;
}
