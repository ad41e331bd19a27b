#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "graph/tensor.h"
#include "io/quantized/coded_matrix.h"

/// The layout that vLLM, SGLang and transformers load: each quantized weight of a module becomes a few tensors
/// "module.suffix", and "quantization_config" of config.json says how they are read.
namespace kaon::compressed_tensors {

/// One of a module's tensors.
struct Part {
  std::string suffix;  ///< "weight_packed"
  DType type = DType::Undefined;
  Shape shape;
  int64_t row_bits = 0;  ///< what a row of the matrix takes; 0: the part is about the whole matrix
};

/// Rows that are coded apart must be a multiple of this, but for the last ones.
inline constexpr int64_t kRowStep = 32;

/// The name of the layout for such a weight: "pack-quantized" …. `inputs`: whether the module's inputs are quantized
/// too. Throws Unsupported at `where`, with what can be stored.
std::string format_for(const TensorSpec& weight, bool inputs, const std::string& where);

/// The tensors of a weight [rows, cols]. `scale_type` is the type of its scales where the format leaves a choice.
std::vector<Part> parts_of(const TensorSpec& spec, const std::string& format, int64_t rows, int64_t cols,
                           DType scale_type);

/// Their bytes for a matrix, or for some rows of it, in the same order.
std::vector<std::vector<std::byte>> encode(const CodedMatrix& matrix, const std::string& format, DType scale_type);

/// A row of "config_groups": {"num_bits": 4, "type": "int", …}.
nlohmann::ordered_json to_args(const TensorSpec& spec, bool dynamic);

/// The same as it is read.
struct Args {
  enum class Strategy { Tensor, Channel, Group, Block, Token, TensorGroup };
  int bits = 8;
  bool is_float = false;
  bool is_unsigned = false;  ///< codes and zero points of 4-bit integers; only other layouts than this know them
  bool symmetric = true;
  Strategy strategy = Strategy::Tensor;
  int64_t group_size = 0;
  int64_t block_rows = 0;  ///< of Strategy::Block
  int64_t block_cols = 0;
  bool dynamic = false;
  bool local = false;  ///< dynamic but for the global scale
};

/// Throws InvalidConfig or Unsupported at `where`.
Args parse_args(const nlohmann::json& args, const std::string& where);

/// How inputs that `args` describe are quantized. Throws Unsupported.
TensorSpec input_spec(const Args& args, const std::string& where);

/// Finds one of a module's tensors; null where it is not there.
using FindPart = std::function<const Tensor*(const std::string& suffix)>;

/// Whether these are the tensors of a quantized weight.
bool holds_weight(const std::string& format, const FindPart& find);
/// Throws CorruptFile where a tensor is missing or its shape or type does not fit.
Shape weight_shape(const std::string& format, const FindPart& find, const std::string& where);
/// float32
Tensor decode(const Args& args, const std::string& format, const FindPart& find, const std::string& where);

}  // namespace kaon::compressed_tensors
