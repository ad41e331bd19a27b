#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/binding.h"
#include "data/sources.h"
#include "graph/describe.h"

namespace kaon {

namespace {

constexpr const char* kLabels = "labels";

struct BoundArray {
  Tensor tensor;
  DType type;  ///< what the model wants
};

class ArrayDataset : public Dataset {
 public:
  ArrayDataset(std::map<std::string, BoundArray> inputs, Tensor labels, Selection selection)
      : inputs_(std::move(inputs)), labels_(std::move(labels)), selection_(selection) {}

  int64_t size() const override { return selection_.count; }
  bool has_labels() const override { return labels_.defined(); }
  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, size());
    Batch batch;
    for (const auto& [name, bound] : inputs_) {
      batch.inputs[name] = convert(slice_samples(bound.tensor, selection_.first + first, count), bound.type);
    }
    if (has_labels()) {
      batch.labels = convert(slice_samples(labels_, selection_.first + first, count), DType::Int64);
    }
    return batch;
  }

 private:
  std::map<std::string, BoundArray> inputs_;
  Tensor labels_;
  Selection selection_;
};

std::string label_of(const std::string& name) { return name.empty() ? "the array" : "array '" + name + "'"; }

Shape sample_shape(const Tensor& tensor, const std::string& where, const std::string& what) {
  if (tensor.rank() == 0) {
    fail(ErrorCode::InvalidInput, where, "{} is a single number; its first axis must count the samples", what);
  }
  return {tensor.shape().begin() + 1, tensor.shape().end()};
}

BoundArray bind_array(const std::string& name, const Tensor& tensor, const ValueInfo& input, const std::string& where) {
  const std::string what = label_of(name);
  const Shape sample = sample_shape(tensor, where, what);
  const DType type = check_fits(tensor.type(), sample, input, where, what);
  if (element_count(sample) * bits_of(tensor.type()) % 8 != 0) {
    fail(ErrorCode::Unsupported, where, "samples of {} do not fill whole bytes ({} {})", what, name_of(tensor.type()),
         to_string(tensor.shape()));
  }
  return {tensor, type};
}

void check_count(const Tensor& tensor, int64_t count, const std::string& name, const std::string& where) {
  if (tensor.shape()[0] == count) return;
  fail(ErrorCode::InvalidInput, where, "{} holds {} samples, but the arrays before it {}", label_of(name),
       tensor.shape()[0], count);
}

[[noreturn]] void missing_input(const NamedTensors& arrays, const std::vector<ValueInfo>& inputs,
                                const std::string& where) {
  std::string names;
  for (const auto& [name, tensor] : arrays) names += (names.empty() ? "'" : ", '") + name + "'";
  fail(ErrorCode::InvalidInput, where, "holds {}, but the model needs {}", names.empty() ? "no arrays" : names,
       describe(inputs));
}

}  // namespace

std::unique_ptr<Dataset> open_arrays(NamedTensors arrays, const std::vector<ValueInfo>& inputs,
                                     const DatasetOptions& options, const std::string& where) {
  std::map<std::string, BoundArray> bound;
  if (arrays.size() == 1 && arrays[0].first.empty()) {
    const ValueInfo& input = find_input(inputs, "", where);
    bound.emplace(input.name, bind_array("", arrays[0].second, input, where));
    const int64_t total = arrays[0].second.shape()[0];
    return std::make_unique<ArrayDataset>(std::move(bound), Tensor(), select_samples(total, 0, 0, options, where));
  }
  if (inputs.empty()) fail(ErrorCode::InvalidInput, where, "the model takes no inputs, so there is nothing to feed it");
  int64_t total = -1;
  for (const ValueInfo& input : inputs) {
    const auto array = std::ranges::find(arrays, input.name, &NamedTensors::value_type::first);
    if (array == arrays.end()) missing_input(arrays, inputs, where);
    bound.emplace(input.name, bind_array(input.name, array->second, input, where));
    if (total < 0) total = array->second.shape()[0];
    check_count(array->second, total, input.name, where);
  }
  Tensor labels;
  for (const auto& [name, tensor] : arrays) {
    if (bound.contains(name)) continue;
    if (name == kLabels) {
      sample_shape(tensor, where, label_of(name));
      check_count(tensor, total, name, where);
      if (!converts(tensor.type(), DType::Int64)) {
        fail(ErrorCode::InvalidInput, where, "array '{}' is {}; classes are integers of at most 64 bits, signed", name,
             name_of(tensor.type()));
      }
      labels = tensor;
    } else if (nearest(name, {kLabels}) == kLabels) {
      fail(ErrorCode::InvalidInput, where, "the model takes no array '{}'; did you mean '{}'?", name, kLabels);
    }
  }
  return std::make_unique<ArrayDataset>(std::move(bound), labels, select_samples(total, 0, 0, options, where));
}

}  // namespace kaon
