#include "io/onnx/test_data.h"

#include <fmt/format.h>

#include "io/onnx/onnx.h"

namespace kaon {

std::vector<Tensor> read_test_tensors(const std::filesystem::path& folder, const std::string& stem) {
  std::vector<Tensor> tensors;
  for (;;) {
    const std::filesystem::path file = folder / fmt::format("{}_{}.pb", stem, tensors.size());
    if (!std::filesystem::exists(file)) return tensors;
    tensors.push_back(read_tensor_proto(file));
  }
}

Tensor as_declared(const Tensor& tensor, const ValueInfo& info) {
  const bool bare = info.type == DType::BFloat16 && tensor.type() == DType::UInt16;
  return bare ? Tensor::copy_bytes(info.type, tensor.shape(), tensor.bytes()) : tensor;
}

}  // namespace kaon
