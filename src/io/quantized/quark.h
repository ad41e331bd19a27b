#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/quantized/compressed_tensors.h"

/// The layout of AMD Quark's exports: "module.weight" holds the codes, "module.weight_scale" their scales. 4-bit
/// integers lie [inputs, outputs], eight outputs in a word in AWQ's order; everything else lies [outputs, inputs].
namespace kaon::quark {

using compressed_tensors::Args;
using compressed_tensors::FindPart;
using compressed_tensors::Part;

/// Throws Unsupported at `where`, with what can be stored.
void check(const TensorSpec& spec, int64_t rows, int64_t cols, const std::string& where);

/// The tensors of a weight [rows, cols] = [outputs, inputs], and their bytes for a matrix or, by_rows(), some rows.
std::vector<Part> parts_of(const TensorSpec& spec, int64_t rows, int64_t cols, DType scale_type);
std::vector<std::vector<std::byte>> encode(const CodedMatrix& matrix, DType scale_type);
bool by_rows(const TensorSpec& spec);

/// {"dtype": "int4", "qscheme": "per_group", …}.
nlohmann::ordered_json to_json(const TensorSpec& spec, bool dynamic);
/// The same as it is read. Throws InvalidConfig or Unsupported at `where`.
Args parse(const nlohmann::json& json, const std::string& where);

/// [outputs, inputs]. Throws CorruptFile where a tensor is missing or does not fit.
Shape weight_shape(const Args& args, const FindPart& find, const std::string& where);
/// `reordered`: the words of 4-bit integers have AWQ's order.
Tensor decode(const Args& args, bool reordered, const FindPart& find, const std::string& where);

}  // namespace kaon::quark
