#include "lm/cache.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace kaon::lm {

namespace {

constexpr int64_t kFirstRoom = 512;
constexpr int64_t kGrowth = 4;

/// Pages that nobody has written to take no memory.
std::shared_ptr<float[]> zeros(int64_t count) {
  auto* memory = static_cast<float*>(std::calloc(static_cast<size_t>(std::max<int64_t>(count, 1)), sizeof(float)));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](float* values) { std::free(values); }};
}

}  // namespace

KeyValueCache::KeyValueCache(const Graph& graph, const Facts& facts, int64_t samples)
    : facts_(facts), samples_(samples) {
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const std::string& name = graph.outputs[i].name;
    if (name.starts_with("new.")) parts_.push_back({"past." + name.substr(4), i, zeros(0)});
  }
}

void KeyValueCache::put_into(TensorMap& inputs) const {
  inputs["past_tokens"] = Tensor::of<int64_t>({1}, std::vector<int64_t>{tokens_});
  for (const Part& part : parts_) {
    inputs[part.input] = Tensor(DType::Float32, {samples_, facts_.kv_heads, room_, facts_.head_width}, part.memory,
                                reinterpret_cast<const std::byte*>(part.memory.get()));
  }
}

void KeyValueCache::make_room(int64_t tokens) {
  if (tokens <= room_) return;
  int64_t room = std::max(room_, kFirstRoom);
  while (room < tokens) room *= kGrowth;
  room = std::max(tokens, std::min(room, facts_.positions));
  const int64_t width = facts_.head_width;
  for (Part& part : parts_) {
    const std::shared_ptr<float[]> memory = zeros(samples_ * facts_.kv_heads * room * width);
    for (int64_t head = 0; head < samples_ * facts_.kv_heads; ++head) {
      std::copy_n(part.memory.get() + head * room_ * width, tokens_ * width, memory.get() + head * room * width);
    }
    part.memory = memory;
  }
  room_ = room;
}

void KeyValueCache::add(const std::vector<Tensor>& outputs) {
  if (parts_.empty()) return;
  const int64_t heads = facts_.kv_heads, width = facts_.head_width;
  const int64_t count = outputs[parts_.front().output].shape().at(1);
  make_room(tokens_ + count);
  for (const Part& part : parts_) {
    const float* rows = outputs[part.output].as<float>().data();
    for (int64_t sample = 0; sample < samples_; ++sample) {
      for (int64_t i = 0; i < count; ++i) {
        for (int64_t head = 0; head < heads; ++head) {
          std::copy_n(rows + ((sample * count + i) * heads + head) * width, width,
                      part.memory.get() + ((sample * heads + head) * room_ + tokens_ + i) * width);
        }
      }
    }
  }
  tokens_ += count;
}

}  // namespace kaon::lm
