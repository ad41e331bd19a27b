// Any bytes give a file whose tensors can all be had, or a kaon::Error.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "io/gguf/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const kaon::GgufFile file = kaon::GgufFile::read(std::as_bytes(std::span(data, size)));
    for (const kaon::GgufTensor& row : file.tensors()) {
      const kaon::Tensor tensor = file.tensor(row);
      if (tensor.shape() != row.shape || file.find(row.name) != &row) std::abort();
    }
  } catch (const kaon::Error&) {
  }
  return 0;
}
