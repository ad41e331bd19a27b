#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "graph/dataset.h"
#include "graph/graph.h"
#include "text/tokenizer.h"

namespace kaon {

struct DatasetOptions {
  int64_t limit = 0;  ///< at most so many samples; 0 leaves it to the source. Wins over a description's "limit".
  /// The model's tokenizer, asked for where the data are text. Empty: the model has none.
  std::function<TokenizerPtr()> tokenizer;
};

/// Opens samples for a model with these inputs (Graph::required_inputs). `path` is one of
///   .npz       arrays named like the inputs; an integer array "labels" is the truth
///   .npy       the array of a model with one input
///   .pt        what torch.save wrote: such an array, or a dict of arrays as in an .npz
///   folder     input_0.pb, input_1.pb … of an ONNX test; one sample where their first axes differ
///   .txt       text, tokenized in one piece and cut into windows of 512 tokens; the labels are the next tokens, and
///              kIgnoredLabel at the end of a window
///   .jsonl     the same of the texts "text" of each line
///   .json      a description of images, CIFAR's binary files, idx files or text
/// Names, ranks, fixed dimensions and types are compared with the inputs here; the first axis counts the samples and is
/// not compared. Elements are converted where nothing is lost but precision (float64 to float32, int32 to int64, uint8
/// to float32 …). Labels come as int64. Arrays that the model does not take are passed over.
/// Throws Io, CorruptFile, Unsupported, InvalidConfig or InvalidInput, naming the file and the array or key at fault.
std::unique_ptr<Dataset> open_dataset(const std::filesystem::path& path, const std::vector<ValueInfo>& model_inputs,
                                      const DatasetOptions& options = {});

}  // namespace kaon
