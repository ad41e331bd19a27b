#pragma once
#include <string>
#include <vector>

#include "io/quantized/compressed_tensors.h"

/// The layouts of AutoAWQ (GEMM) and AutoGPTQ (version 1): matrices [inputs, outputs], eight or so codes a word, scales
/// of float16 for each group of inputs and each output.
namespace kaon::transposed {

using compressed_tensors::FindPart;
using compressed_tensors::Part;

enum class Method { Awq, Gptq };

/// How "quantization_config" describes all quantized layers.
struct Settings {
  Method method = Method::Awq;
  int bits = 4;
  int64_t group_size = 128;  ///< -1: one group of all inputs
};

/// Throws Unsupported at `where`, with what can be stored.
void check(Method method, const TensorSpec& spec, int64_t rows, int64_t cols, const std::string& where);

/// The tensors of a weight [rows, cols] = [outputs, inputs].
std::vector<Part> parts_of(Method method, const TensorSpec& spec, int64_t rows, int64_t cols);
/// Their bytes, in the same order, of the whole matrix.
std::vector<std::vector<std::byte>> encode(Method method, const CodedMatrix& matrix);

/// [outputs, inputs]. Throws CorruptFile where a tensor is missing or does not fit.
Shape weight_shape(const Settings& settings, const FindPart& find, const std::string& where);
Tensor decode(const Settings& settings, const FindPart& find, const std::string& where);

}  // namespace kaon::transposed
