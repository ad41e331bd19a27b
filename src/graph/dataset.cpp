#include "graph/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "graph/describe.h"
#include "graph/finite.h"

namespace kaon {

namespace {

/// The first dimension that the inputs fix, or 0.
int64_t fixed_batch(const Graph& graph, const std::set<std::string>& aside) {
  int64_t fixed = 0;
  std::string fixed_by;
  for (const ValueInfo& input : graph.required_inputs()) {
    if (aside.contains(input.name) || !input.shape || input.shape->empty()) continue;
    const int64_t size = input.shape->front().value.value_or(0);
    if (size <= 0) continue;
    if (fixed != 0 && size != fixed) {
      fail(ErrorCode::Unsupported, input.name,
           "its first dimension is {} and that of '{}' is {}; the first dimension must count the samples; inputs "
           "that count none go under \"fixed\" or \"carry\" in a description of the data",
           size, fixed_by, fixed);
    }
    fixed = size;
    fixed_by = input.name;
  }
  return fixed;
}

}  // namespace

const SideInputs& Dataset::side_inputs() const {
  static const SideInputs none;
  return none;
}

CarriedState::CarriedState(const Dataset& data, const Graph& graph) : side_(data.side_inputs()) {
  for (const auto& [output, input] : side_.carry) {
    const auto found = std::ranges::find(graph.outputs, output, &ValueInfo::name);
    if (found == graph.outputs.end()) {
      fail(ErrorCode::InvalidInput, "carry", "the model has no output '{}'; it makes {}", output,
           describe(graph.outputs));
    }
    from_[input] = static_cast<size_t>(found - graph.outputs.begin());
  }
}

TensorMap CarriedState::enter(const Batch& batch) {
  TensorMap inputs = batch.inputs;
  const bool anew = side_.restart > 0 && runs_ % side_.restart == 0;
  if (!anew) {
    for (const auto& [name, tensor] : state_) inputs[name] = tensor;
  }
  ++runs_;
  return inputs;
}

void CarriedState::leave(const std::vector<Tensor>& outputs) {
  for (const auto& [input, at] : from_) state_[input] = outputs.at(at);
}

int64_t batch_for(const Graph& graph, int64_t wanted, const std::set<std::string>& aside) {
  if (wanted < 1) fail(ErrorCode::InvalidInput, "batch", "is {}; it must be at least 1", wanted);
  const int64_t fixed = fixed_batch(graph, aside);
  return fixed > 0 ? fixed : wanted;
}

int64_t batch_for(const Graph& graph, int64_t wanted, const Dataset& data) {
  const SideInputs& side = data.side_inputs();
  const int64_t batch = batch_for(graph, side.carry.empty() ? wanted : 1, side.names);
  if (data.size() < 1) fail(ErrorCode::InvalidInput, "data", "the dataset is empty");
  if (fixed_batch(graph, side.names) > 0 && data.size() % batch != 0) {
    fail(ErrorCode::InvalidInput, "data",
         "the model takes {} samples at a time, and {} samples leave {} over; limit them to a multiple of {}", batch,
         data.size(), data.size() % batch, batch);
  }
  return batch;
}

void check_finite(const Batch& batch, int64_t first) {
  for (const auto& [name, tensor] : batch.inputs) {
    const int64_t at = first_non_finite(tensor);
    if (at < 0) continue;
    Shape index = index_at(tensor.shape(), at);
    const int64_t sample = index.empty() ? 0 : index.front();
    if (!index.empty()) index.erase(index.begin());
    fail(ErrorCode::InvalidInput, name, "sample {} has a NaN or Inf at element {}; data must be finite", first + sample,
         to_string(index));
  }
}

}  // namespace kaon
