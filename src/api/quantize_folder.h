#pragma once
#include <filesystem>
#include <string>

#include "api/quantize.h"

namespace kaon {

struct FolderOptions {
  std::string format;     ///< one of folder_methods(); "" = format_of_output()
  int64_t memory_mb = 0;  ///< above 0: hidden states beyond this go to a file
  bool resume = false;    ///< go on where a run that was killed or interrupted stopped
  Progress* progress = &no_progress();
};

/// What a language model is written as: "gguf" for OUT.gguf, "onnx" for OUT.onnx, else "compressed-tensors".
std::string format_of_output(const std::filesystem::path& output);

/// Quantizes the language model in the folder `in` into the folder or file `out`, which appears whole or not at all.
///
/// The Linear layers of the blocks are quantized; embeddings, norms and the head stay as they are unless `config` names
/// them. Where nothing must be learned from data, tensors go from the mapped files to the new ones without a forward
/// run, a few of their rows in memory at a time. Otherwise it goes block by block: what reaches block i when those
/// before it are quantized calibrates it and feeds its algorithms, then it is written; one block is in memory.
///
/// Each block is read back from the draft, and what it makes of some windows must be what the quantized block in memory
/// makes of them; of those that learn nothing, the first and the last are looked at. Throws Internal where it is not,
/// Unsupported for what the format cannot hold, with what can.
///
/// A run that is killed or interrupted leaves its draft beside `out`. One with `resume` goes on at the first block or
/// layer that is not finished, and ends in the same bytes; any other removes the draft and starts afresh.
QuantizeReport quantize_folder(const std::filesystem::path& in, const std::filesystem::path& out, const Config& config,
                               const DataOptions& data, const FolderOptions& options);

}  // namespace kaon
