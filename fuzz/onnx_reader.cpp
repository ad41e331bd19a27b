// Any bytes give a model, a tensor or a kaon::Error; what was read can be written, and reads back as the same.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>

#include "base/error.h"
#include "io/onnx/onnx.h"
#include "scratch_file.h"

namespace {

template <typename Read>
auto attempt(const Read& read) -> std::optional<decltype(read())> {
  try {
    return read();
  } catch (const kaon::Error&) {
    return std::nullopt;
  }
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile kScratch;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto model = attempt([&] { return kaon::read_onnx(bytes); })) {
    kaon::write_onnx(*model, kScratch.path());
    const kaon::Model again = kaon::read_onnx(kScratch.path());
    require(again.graph.nodes.size() == model->graph.nodes.size());
    require(again.graph.initializers.size() == model->graph.initializers.size());
    require(again.opsets == model->opsets && again.extra == model->extra && again.graph.extra == model->graph.extra);
  }
  if (const auto tensor = attempt([&] { return kaon::read_tensor_proto(bytes); })) {
    kaon::write_tensor_proto(*tensor, kScratch.path());
    const kaon::Tensor again = kaon::read_tensor_proto(kScratch.path());
    require(again.type() == tensor->type() && again.shape() == tensor->shape());
  }
  return 0;
}
