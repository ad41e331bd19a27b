#include "engine/plan/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "engine/plan/simd.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = 32 * 1024;  // elements worth waking a second thread for

/// Rows of Columns neighbours, `stride` apart.
template <int64_t Columns>
void copy_rows(const float* in, float* out, int64_t rows, int64_t stride) {
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out + row * Columns, in + row * stride, static_cast<size_t>(Columns) * sizeof(float));
  }
}

void copy_neighbours(const float* in, float* out, int64_t rows, int64_t stride, int64_t columns) {
  switch (columns) {
    case 2: return copy_rows<2>(in, out, rows, stride);
    case 4: return copy_rows<4>(in, out, rows, stride);
    case 8: return copy_rows<8>(in, out, rows, stride);
    case 16: return copy_rows<16>(in, out, rows, stride);
    case 32: return copy_rows<32>(in, out, rows, stride);
    case 64: return copy_rows<64>(in, out, rows, stride);
    default: break;
  }
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(out + row * columns, in + row * stride, static_cast<size_t>(columns) * sizeof(float));
  }
}

/// Rows whose elements lie `step` apart, the rows `stride` apart.
KAON_SIMD void copy_apart(const float* in, float* out, int64_t rows, int64_t stride, int64_t columns, int64_t step) {
  for (int64_t row = 0; row < rows; ++row, in += stride, out += columns) {
    for (int64_t i = 0; i < columns; ++i) out[i] = in[i * step];
  }
}

}  // namespace

StridedCopyAction::StridedCopyAction(int32_t in, int32_t out, std::span<const int64_t> dims,
                                     std::span<const int64_t> strides, int64_t offset)
    : in_(in), out_(out), offset_(offset) {
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 1) continue;
    if (!dims_.empty() && strides_.back() == strides[i] * dims[i]) {
      dims_.back() *= dims[i];
      strides_.back() = strides[i];
    } else {
      dims_.push_back(dims[i]);
      strides_.push_back(strides[i]);
    }
  }
  if (dims_.empty()) {
    dims_.push_back(1);
    strides_.push_back(1);
  }
  if (dims_.size() == 1) {
    dims_.insert(dims_.begin(), 1);
    strides_.insert(strides_.begin(), 0);
  }
}

void StridedCopyAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_) + offset_;
  auto* out = runtime.at<float>(out_);
  const size_t outer = dims_.size() - 2;
  const int64_t rows = dims_[outer];
  const int64_t columns = dims_[outer + 1];
  int64_t all_rows = rows;
  for (size_t i = 0; i < outer; ++i) all_rows *= dims_[i];
  parallel_for(0, all_rows, std::max<int64_t>(1, kGrain / columns), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      int64_t rest = row / rows, at = 0;
      for (size_t i = outer; i-- > 0;) {
        at += rest % dims_[i] * strides_[i];
        rest /= dims_[i];
      }
      const int64_t first = row % rows;
      const int64_t count = std::min(rows - first, end - row);
      const float* from = in + at + first * strides_[outer];
      if (strides_[outer + 1] == 1) {
        copy_neighbours(from, out + row * columns, count, strides_[outer], columns);
      } else {
        copy_apart(from, out + row * columns, count, strides_[outer], columns, strides_[outer + 1]);
      }
      row += count;
    }
  });
}

}  // namespace kaon
