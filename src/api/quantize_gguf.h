#pragma once
#include <filesystem>
#include <string>

#include "api/quantize_folder.h"

namespace kaon {

/// Whether `scheme` is one that GGUF files have: a type ("q4_0", "f16") or a mixture ("q4_k_m").
bool is_gguf_scheme(const std::string& scheme);
std::vector<std::string> gguf_schemes();

/// Writes the language model in the folder `in` as a GGUF file, tensor by tensor, with its tokenizer; `exclude` are
/// globs on layers that stay float16. Matrices whose rows are no whole blocks of the type get one with smaller blocks.
/// With calibration data, what is multiplied with larger numbers is rounded more carefully. Before the file appears, it
/// is read back and some of its blocks are run against the float model with the same rounding.
QuantizeReport quantize_gguf(const std::filesystem::path& in, const std::filesystem::path& out,
                             const std::string& scheme, const std::vector<std::string>& exclude,
                             const DataOptions& data, const FolderOptions& options);

}  // namespace kaon
