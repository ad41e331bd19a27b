#include <algorithm>
#include <functional>

#include "base/error.h"
#include "data/binding.h"
#include "data/description.h"
#include "data/sources.h"
#include "graph/describe.h"

namespace kaon {

namespace {

namespace fs = std::filesystem;

/// Samples, and beside them inputs that count none.
class StatefulDataset : public Dataset {
 public:
  StatefulDataset(std::unique_ptr<Dataset> samples, TensorMap fixed, SideInputs side, Selection selection)
      : samples_(std::move(samples)), fixed_(std::move(fixed)), side_(std::move(side)), selection_(selection) {}

  int64_t size() const override { return selection_.count; }
  bool has_labels() const override { return samples_->has_labels(); }
  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, size());
    Batch batch = samples_->read(selection_.first + first, count);
    for (const auto& [name, tensor] : fixed_) batch.inputs[name] = tensor;
    return batch;
  }
  const SideInputs& side_inputs() const override { return side_; }

 private:
  std::unique_ptr<Dataset> samples_;
  TensorMap fixed_;
  SideInputs side_;
  Selection selection_;
};

NamedTensors read_arrays(const fs::path& path) {
  const std::string kind = path.extension().string();
  if (kind == ".npz") return read_npz(path);
  if (kind == ".npy") return {{"", read_npy(path)}};
  if (kind == ".pt") return read_torch_file(path);
  fail(ErrorCode::InvalidInput, path.string(), "\"samples\" names a file .npz, .npy or .pt");
}

/// Numbers in nested lists, all of one shape.
struct Numbers {
  Shape shape;
  std::vector<double> values;
};

Numbers read_numbers(const nlohmann::json& json, const std::string& where, const std::string& name) {
  constexpr size_t kDeepest = 8;
  Numbers numbers;
  const std::function<void(const nlohmann::json&, size_t)> visit = [&](const nlohmann::json& item, size_t depth) {
    const bool list = item.is_array() && depth < kDeepest;
    const bool fits = depth < numbers.shape.size() ? list && std::ssize(item) == numbers.shape[depth]
                                                   : item.is_number() || item.is_boolean();
    if (!fits) {
      fail(ErrorCode::InvalidConfig, where,
           "\"fixed\": '{}' must be a number, lists of numbers of one shape, or the name of a .npy file", name);
    }
    if (list) {
      for (const nlohmann::json& part : item) visit(part, depth + 1);
    } else {
      numbers.values.push_back(item.is_boolean() ? static_cast<double>(item.get<bool>()) : item.get<double>());
    }
  };
  const nlohmann::json* first = &json;
  while (first->is_array() && numbers.shape.size() < kDeepest) {
    numbers.shape.push_back(std::ssize(*first));
    if (first->empty()) break;
    first = &first->front();
  }
  visit(json, 0);
  return numbers;
}

/// The input's shape; a dimension that the model leaves open is 1.
Shape declared_shape(const ValueInfo& input, const std::string& where) {
  constexpr int64_t kMostNumbers = int64_t{1} << 28;
  Shape shape;
  if (!input.shape) return shape;
  int64_t count = 1;
  for (const Dim& dim : *input.shape) {
    shape.push_back(std::max<int64_t>(dim.value.value_or(1), 0));
    if (shape.back() > kMostNumbers / std::max<int64_t>(count, 1)) {
      fail(ErrorCode::Unsupported, where, "input '{}' is {}: too large to be filled", input.name, describe(input));
    }
    count *= shape.back();
  }
  return shape;
}

template <typename T>
Tensor typed(const Numbers& numbers) {
  return Tensor::of<T>(numbers.shape, std::vector<T>(numbers.values.begin(), numbers.values.end()));
}

Tensor of_type(const Numbers& numbers, const ValueInfo& input, const std::string& where) {
  switch (input.type) {
    case DType::Undefined:
    case DType::Float32: return typed<float>(numbers);
    case DType::Float64: return typed<double>(numbers);
    case DType::Float16:
    case DType::BFloat16: return convert(typed<float>(numbers), input.type);
    case DType::Int32: return typed<int32_t>(numbers);
    case DType::Int64: return typed<int64_t>(numbers);
    case DType::Bool: {
      const std::vector<uint8_t> bytes(numbers.values.begin(), numbers.values.end());
      return Tensor::copy_bytes(DType::Bool, numbers.shape, std::as_bytes(std::span(bytes)));
    }
    default: break;
  }
  fail(ErrorCode::Unsupported, where, "\"fixed\": input '{}' is {}; give it as a .npy file", input.name,
       name_of(input.type));
}

void check_shape(const Tensor& tensor, const ValueInfo& input, const std::string& where) {
  if (!input.shape) return;
  bool fits = std::ssize(*input.shape) == tensor.rank();
  for (size_t i = 0; fits && i < input.shape->size(); ++i) {
    fits = (*input.shape)[i].value.value_or(tensor.shape()[i]) == tensor.shape()[i];
  }
  if (fits) return;
  fail(ErrorCode::InvalidInput, where, "\"fixed\": '{}' has the shape {}, but the model's input is {}", input.name,
       to_string(tensor.shape()), describe(input));
}

Tensor fixed_tensor(const nlohmann::json& json, const ValueInfo& input, const Description& description) {
  const std::string& where = description.where();
  Tensor tensor;
  if (json.is_string()) {
    const fs::path path = description.beside(json.get<std::string>());
    tensor = read_npy(path);
    const DType to = input.type == DType::Undefined ? tensor.type() : input.type;
    if (!converts(tensor.type(), to)) {
      fail(ErrorCode::InvalidInput, path.string(), "is {}, but the model's input '{}' is {}", name_of(tensor.type()),
           input.name, describe(input));
    }
    tensor = convert(tensor, to);
  } else {
    Numbers numbers = read_numbers(json, where, input.name);
    // One number fills whatever the input is.
    if (numbers.shape.empty()) {
      numbers.shape = declared_shape(input, where);
      numbers.values.assign(static_cast<size_t>(element_count(numbers.shape)), numbers.values.front());
    }
    tensor = of_type(numbers, input, where);
  }
  check_shape(tensor, input, where);
  return tensor;
}

}  // namespace

std::unique_ptr<Dataset> open_stateful(const Description& description, const std::vector<ValueInfo>& inputs,
                                       const DatasetOptions& options) {
  description.check_keys({"samples", "fixed", "carry", "restart", "first", "limit"});
  const std::string& where = description.where();
  SideInputs side;
  TensorMap fixed;
  for (const auto& [name, value] : description.object("fixed").items()) {
    fixed[name] = fixed_tensor(value, find_input(inputs, name, where), description);
    side.names.insert(name);
  }
  for (const auto& [output, value] : description.object("carry").items()) {
    if (!value.is_string()) {
      fail(ErrorCode::InvalidConfig, where, "\"carry\": '{}' must be the name of an input of the model", output);
    }
    const ValueInfo& input = find_input(inputs, value.get<std::string>(), where);
    const bool twice = std::ranges::any_of(side.carry, [&](const auto& known) { return known.second == input.name; });
    if (twice) fail(ErrorCode::InvalidConfig, where, "\"carry\": two outputs for the input '{}'", input.name);
    side.carry[output] = input.name;
    if (!fixed.contains(input.name)) fixed[input.name] = fixed_tensor(0, input, description);
    side.names.insert(input.name);
  }
  constexpr int64_t kMost = int64_t{1} << 48;
  side.restart = description.integer("restart", 0, 1, kMost);
  std::vector<ValueInfo> counted;
  std::ranges::copy_if(inputs, std::back_inserter(counted),
                       [&](const ValueInfo& input) { return !side.names.contains(input.name); });
  const fs::path path = description.file("samples");
  std::unique_ptr<Dataset> samples = open_arrays(read_arrays(path), counted, {}, path.string());
  const Selection selection = description.select(samples->size(), options);
  return std::make_unique<StatefulDataset>(std::move(samples), std::move(fixed), std::move(side), selection);
}

}  // namespace kaon
