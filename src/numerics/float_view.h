#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace kaon {

/// Read-only float32, float16 or bfloat16 numbers; the 16-bit kinds are converted on the fly.
struct FloatView {
  enum class Type { Float32, Float16, BFloat16 };
  const void* data = nullptr;
  int64_t size = 0;
  Type type = Type::Float32;

  FloatView() = default;
  FloatView(std::span<const float> values) : data(values.data()), size(std::ssize(values)) {}
  FloatView(std::span<float> values) : FloatView(std::span<const float>(values)) {}
  FloatView(const std::vector<float>& values) : FloatView(std::span<const float>(values)) {}
  FloatView(const void* data_, int64_t size_, Type type_) : data(data_), size(size_), type(type_) {}

  /// Element `i` as float32; 0 <= i < size.
  float at(int64_t i) const;
};

}  // namespace kaon
