// Any bytes give arrays or a kaon::Error; arrays that were read can be written, and read back as the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/error.h"
#include "io/npy/npy.h"
#include "scratch_file.h"

namespace {

void require_same(const kaon::Tensor& a, const kaon::Tensor& b) {
  if (a.type() != b.type() || a.shape() != b.shape() || !std::ranges::equal(a.bytes(), b.bytes())) std::abort();
}

void try_npy(std::span<const std::byte> bytes, const std::filesystem::path& scratch) {
  kaon::Tensor tensor;
  try {
    tensor = kaon::read_npy(bytes);
  } catch (const kaon::Error&) {
    return;
  }
  kaon::write_npy(tensor, scratch);
  require_same(kaon::read_npy(scratch), tensor);
}

void try_npz(std::span<const std::byte> bytes, const std::filesystem::path& scratch) {
  kaon::NamedTensors tensors;
  try {
    tensors = kaon::read_npz(bytes);
  } catch (const kaon::Error&) {
    return;
  }
  kaon::write_npz(tensors, scratch, kaon::NpzCompression::Deflate);
  const kaon::NamedTensors again = kaon::read_npz(scratch);
  if (again.size() != tensors.size()) std::abort();
  for (size_t i = 0; i < again.size(); ++i) require_same(again[i].second, tensors[i].second);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile kScratch;
  const auto bytes = std::as_bytes(std::span(data, size));
  try_npy(bytes, kScratch.path());
  try_npz(bytes, kScratch.path());
  return 0;
}
