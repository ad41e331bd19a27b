#include "io/onnx/test_data.h"

#include <algorithm>

#include "base/error.h"
#include "data/binding.h"
#include "data/sources.h"
#include "graph/describe.h"

namespace kaon {

namespace {

/// Inputs that belong together but do not share an axis of samples: one sample, handed out as it lies in the files.
class WholeBatch : public Dataset {
 public:
  explicit WholeBatch(TensorMap inputs) : inputs_(std::move(inputs)) {}
  int64_t size() const override { return 1; }
  bool has_labels() const override { return false; }
  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, 1);
    return {inputs_, {}};
  }

 private:
  TensorMap inputs_;
};

}  // namespace

std::unique_ptr<Dataset> open_test_data(const std::filesystem::path& folder, const std::vector<ValueInfo>& inputs,
                                        const DatasetOptions& options) {
  const std::string where = folder.string();
  const std::vector<Tensor> given = read_test_tensors(folder, "input");
  if (given.size() != inputs.size()) {
    fail(ErrorCode::InvalidInput, where, "holds {} files input_N.pb, but the model needs {}: {}", given.size(),
         inputs.size(), describe(inputs));
  }
  NamedTensors arrays;
  for (size_t i = 0; i < given.size(); ++i) arrays.emplace_back(inputs[i].name, as_declared(given[i], inputs[i]));
  const bool share_samples = std::ranges::all_of(arrays, [&](const auto& array) {
    return array.second.rank() > 0 && array.second.shape()[0] == arrays[0].second.shape()[0];
  });
  if (share_samples) return open_arrays(std::move(arrays), inputs, options, where);

  TensorMap whole;
  for (size_t i = 0; i < given.size(); ++i) {
    const auto& [name, tensor] = arrays[i];
    if (inputs[i].type != DType::Undefined && inputs[i].type != tensor.type()) {
      fail(ErrorCode::InvalidInput, where, "input_{}.pb is {}, but the model's input '{}' is {}", i,
           name_of(tensor.type()), name, name_of(inputs[i].type));
    }
    whole.emplace(name, tensor);
  }
  return std::make_unique<WholeBatch>(std::move(whole));
}

}  // namespace kaon
