#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/tensor.h"

namespace kaon {

/// A tensor as a pickle of torch.save describes it: a strided view of a storage that lies elsewhere in the file.
struct PickledTensor {
  std::string storage;  ///< its key
  DType type = DType::Undefined;
  int64_t storage_size = 0;  ///< elements
  int64_t offset = 0;
  Shape shape;
  std::vector<int64_t> strides;
};

/// What the pickle holds: a tensor without a name, or the tensors of a dict. Whatever else a dict holds is passed over.
struct PickledTensors {
  std::vector<std::pair<std::string, PickledTensor>> tensors;
  std::vector<std::pair<std::string, int64_t>> storages;  ///< key and bytes of each storage, sorted by key
};

/// Reads the pickles that torch.save writes (protocols 2 to 5). The few functions they call are known here by name;
/// nothing is executed, and any other name is refused. `bytes` is advanced past the pickle.
/// Throws CorruptFile or Unsupported at `where`.
PickledTensors read_pickle(std::span<const std::byte>& bytes, const std::string& where);
/// The same for a pickle whose value does not matter.
void skip_pickle(std::span<const std::byte>& bytes, const std::string& where);

}  // namespace kaon
