#include "lm/hidden_states.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace kaon::lm {

HiddenStates::HiddenStates(Engine embedding, const Dataset& data, int64_t batch, int64_t in_memory)
    : windows_(data.size()) {
  for (int64_t first = 0; first < windows_; first += batch) {
    const int64_t count = std::min(batch, windows_ - first);
    const Batch windows = data.read(first, count);
    const Tensor states = embedding.run(windows.inputs).front();
    if (first == 0) {
      tokens_ = states.shape()[1];
      width_ = states.shape()[2];
      states_ = SpillBuffer(windows_ * tokens_ * width_ * static_cast<int64_t>(sizeof(float)), in_memory);
    }
    write(first, states);
  }
}

int64_t HiddenStates::at_once(int64_t most) const {
  constexpr int64_t kRows = 512;
  return std::clamp<int64_t>(kRows / std::max<int64_t>(1, tokens_), 1, most);
}

void HiddenStates::advance(const Run& block, int64_t most) {
  const int64_t batch = at_once(most);
  for (int64_t first = 0; first < windows_; first += batch) {
    const int64_t count = std::min(batch, windows_ - first);
    write(first, block(read(first, count).inputs).front());
  }
}

Batch HiddenStates::read(int64_t first, int64_t count) const {
  Batch batch;
  batch.inputs["hidden"] = Tensor::of<float>({count, tokens_, width_}, std::span<const float>(part(first, count)));
  return batch;
}

void HiddenStates::write(int64_t first, const Tensor& states) {
  const int64_t count = std::min(states.shape().front(), windows_ - first);
  if (states.shape() != Shape{count, tokens_, width_}) {
    fail(ErrorCode::InvalidInput, "input_ids", "windows of {} tokens and of {}; one length is needed", tokens_,
         states.shape()[1]);
  }
  std::ranges::copy(states.as<float>(), part(first, count).begin());
}

std::span<float> HiddenStates::part(int64_t first, int64_t count) const {
  const int64_t each = tokens_ * width_;
  const std::span<std::byte> bytes = states_.bytes();
  return {reinterpret_cast<float*>(bytes.data()) + first * each, static_cast<size_t>(count * each)};
}

}  // namespace kaon::lm
