#include "data/dataset.h"

#include "base/error.h"
#include "data/description.h"
#include "data/sources.h"

namespace kaon {

namespace fs = std::filesystem;

std::unique_ptr<Dataset> open_dataset(const fs::path& path, const std::vector<ValueInfo>& model_inputs,
                                      const DatasetOptions& options) {
  const std::string where = path.string();
  std::error_code error;  // what cannot be looked at is not there
  if (fs::is_directory(path, error)) {
    if (fs::exists(path / "input_0.pb", error)) return open_test_data(path, model_inputs, options);
    fail(ErrorCode::InvalidInput, where,
         "a folder without input_0.pb is no ONNX test data; for a folder of images, give a .json that describes it");
  }
  if (!fs::exists(path, error)) fail(ErrorCode::Io, where, "no such file or folder");
  const std::string kind = path.extension().string();
  if (kind == ".npz") return open_arrays(read_npz(path), model_inputs, options, where);
  if (kind == ".npy") return open_arrays({{"", read_npy(path)}}, model_inputs, options, where);
  if (kind == ".pt") return open_arrays(read_torch_file(path), model_inputs, options, where);
  if (kind == ".txt" || kind == ".jsonl") {
    return open_text(Description({{"text", path.filename().string()}}, path.parent_path(), where), model_inputs,
                     options);
  }
  if (kind == ".json") return open_description(path, model_inputs, options);
  fail(ErrorCode::InvalidInput, where,
       "no kind of data known by '{}'; .npz, .npy, .pt, .txt, .jsonl, a description .json and a folder of ONNX test "
       "data "
       "are read",
       kind);
}

}  // namespace kaon
