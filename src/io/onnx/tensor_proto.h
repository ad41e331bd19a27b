#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "graph/tensor.h"

namespace onnx {
class TensorProto;
}

namespace kaon {

class MappedFile;

/// The files beside a model that its tensors lie in, each mapped once.
class ExternalFiles {
 public:
  ExternalFiles() = default;  ///< refuses every location
  /// Locations are relative to `folder`. Files may lie inside it or, where `model` is a symbolic link, inside the
  /// folder of the file it leads to.
  explicit ExternalFiles(const std::filesystem::path& folder, const std::filesystem::path& model = {});

  /// Throws, with `where`, unless `location` leads to a regular file inside the folder.
  std::shared_ptr<const MappedFile> open(const std::string& location, const std::string& where);
  /// The size of the files opened so far.
  int64_t bytes() const;

 private:
  std::filesystem::path folder_;
  std::vector<std::filesystem::path> roots_;  ///< canonical
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

/// Moves type, shape and data out of `proto`; name, doc string and whatever else it holds stay. The sizes are checked
/// before anything is allocated.
Tensor take_tensor(onnx::TensorProto& proto, ExternalFiles& files, const std::string& where);

/// Sets type, shape and, for strings, the data. Other data is the caller's to write.
void put_header(const Tensor& tensor, onnx::TensorProto& proto);
/// put_header and the data.
void put_tensor(const Tensor& tensor, onnx::TensorProto& proto);

}  // namespace kaon
