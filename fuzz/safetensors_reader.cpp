// Any bytes give tensors or a kaon::Error; tensors that were read can be written, and read back as the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <span>

#include "base/error.h"
#include "io/safetensors/safetensors.h"
#include "scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile kScratch;
  kaon::NamedTensors tensors;
  kaon::SafetensorsMetadata metadata, metadata_again;
  try {
    tensors = kaon::read_safetensors(std::as_bytes(std::span(data, size)), &metadata);
  } catch (const kaon::Error&) {
    return 0;
  }
  kaon::write_safetensors(tensors, kScratch.path(), metadata);
  const kaon::NamedTensors read = kaon::read_safetensors(kScratch.path(), &metadata_again);
  const std::map<std::string, kaon::Tensor> again(read.begin(), read.end());
  if (read.size() != tensors.size() || metadata != metadata_again) std::abort();
  for (const auto& [name, tensor] : tensors) {
    const kaon::Tensor& other = again.at(name);
    if (tensor.type() != other.type() || tensor.shape() != other.shape()) std::abort();
    if (!std::ranges::equal(tensor.bytes(), other.bytes())) std::abort();
  }
  return 0;
}
