#include "engine/plan/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "engine/plan/simd.h"
#include "numerics/exponentials.h"

namespace kaon {

namespace {

constexpr int64_t kGrain = 16 * 1024;  // elements worth waking a second thread for
constexpr int64_t kQueries = 32;       // of a block
constexpr int64_t kRows = 4;           // of a result that are computed together
constexpr int64_t kLanes = 8;

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

int64_t padded(int64_t keys) { return (keys + kLanes - 1) / kLanes * kLanes; }

/// kRows × (Vectors · kLanes) elements of a·b: sums stay in registers, their terms are added in order.
template <int64_t Vectors>
__attribute__((always_inline)) inline void tile(const float* a, int64_t a_row, const float* b, int64_t b_row,
                                                float* out, int64_t out_row, int64_t terms) {
  Lanes sums[kRows][Vectors] = {};
  for (int64_t term = 0; term < terms; ++term) {
    const auto* right = reinterpret_cast<const Lanes*>(b + term * b_row);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t v = 0; v < Vectors; ++v) sums[row][v] += a[row * a_row + term] * right[v];
    }
  }
  for (int64_t row = 0; row < kRows; ++row) {
    auto* to = reinterpret_cast<Lanes*>(out + row * out_row);
    for (int64_t v = 0; v < Vectors; ++v) to[v] = sums[row][v];
  }
}

/// a [rows, terms] times b [terms, columns]; `rows` is a multiple of kRows.
KAON_SIMD void multiply(const float* a, int64_t a_row, const float* b, int64_t b_row, float* out, int64_t out_row,
                        int64_t rows, int64_t columns, int64_t terms) {
  for (int64_t row = 0; row < rows; row += kRows) {
    const float* left = a + row * a_row;
    float* to = out + row * out_row;
    int64_t c = 0;
    for (; c + 3 * kLanes <= columns; c += 3 * kLanes) tile<3>(left, a_row, b + c, b_row, to + c, out_row, terms);
    for (; c + kLanes <= columns; c += kLanes) tile<1>(left, a_row, b + c, b_row, to + c, out_row, terms);
    for (; c < columns; ++c) {
      float sums[kRows] = {};
      for (int64_t term = 0; term < terms; ++term) {
        for (int64_t r = 0; r < kRows; ++r) sums[r] += left[r * a_row + term] * b[term * b_row + c];
      }
      for (int64_t r = 0; r < kRows; ++r) to[r * out_row + c] = sums[r];
    }
  }
}

KAON_SIMD void scaled(const float* x, float* y, int64_t count, float by) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * by;
}

/// Sixteen partial sums, so that the loop vectorizes without reordering a serial one.
KAON_SIMD float sum_of(const float* x, int64_t count) {
  float parts[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t k = 0; k < 16; ++k) parts[k] += x[i + k];
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  for (; i < count; ++i) sum += x[i];
  return sum;
}

KAON_SIMD float sum_of_squares(const float* x, int64_t count, float centre) {
  float parts[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t k = 0; k < 16; ++k) parts[k] += (x[i + k] - centre) * (x[i + k] - centre);
  }
  float sum = 0;
  for (const float part : parts) sum += part;
  for (; i < count; ++i) sum += (x[i] - centre) * (x[i] - centre);
  return sum;
}

KAON_SIMD void normalized(const float* x, const float* scale, const float* bias, float* y, int64_t count, float centre,
                          float inverse) {
  if (bias == nullptr) {
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - centre) * inverse * scale[i];
  } else {
    for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - centre) * inverse * scale[i] + bias[i];
  }
}

/// The first and second halves of a head are the two elements of each pair.
KAON_SIMD void turn_halves(const float* x, const float* cosine, const float* sine, float* y, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    y[i] = x[i] * cosine[i] - x[pairs + i] * sine[i];
    y[pairs + i] = x[i] * sine[i] + x[pairs + i] * cosine[i];
  }
}

void turn_neighbours(const float* x, const float* cosine, const float* sine, float* y, int64_t pairs) {
  for (int64_t i = 0; i < pairs; ++i) {
    y[2 * i] = x[2 * i] * cosine[i] - x[2 * i + 1] * sine[i];
    y[2 * i + 1] = x[2 * i] * sine[i] + x[2 * i + 1] * cosine[i];
  }
}

}  // namespace

void SoftmaxRowsAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  auto* out = runtime.at<float>(out_);
  parallel_for(0, rows_, std::max<int64_t>(1, kGrain / columns_), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* from = in + row * columns_;
      float* to = out + row * columns_;
      const float top = row_maximum(from, columns_);
      if (std::isnan(top)) {
        std::fill_n(to, columns_, top);
        continue;
      }
      const float sum = exponentials(from, to, columns_, top);
      scaled(to, to, columns_, 1 / sum);
    }
  });
}

int64_t AttentionAction::scratch_size(const Sizes& sizes) {
  return sizes.samples * sizes.key_heads * sizes.width * padded(sizes.keys);
}

/// One head's keys, turned: [width, keys], padded with zeros.
void AttentionAction::pack_keys(const float* keys, float* packed) const {
  const int64_t row = padded(sizes_.keys);
  for (int64_t first = 0; first < row; first += kLanes) {
    const int64_t count = std::clamp<int64_t>(sizes_.keys - first, 0, kLanes);
    for (int64_t c = 0; c < sizes_.width; ++c) {
      float* to = packed + c * row + first;
      for (int64_t i = 0; i < count; ++i) to[i] = keys[(first + i) * k_.strides.row + c];
      for (int64_t i = count; i < kLanes; ++i) to[i] = 0;
    }
  }
}

/// A block of queries from `first` on; `buffer` holds their scores, their queries and results.
void AttentionAction::attend(Runtime& runtime, int64_t sample, int64_t head, int64_t first, float* buffer) const {
  const int64_t row_length = padded(sizes_.keys);
  const int64_t key_head = head / (sizes_.heads / sizes_.key_heads);
  const int64_t count = std::min(kQueries, sizes_.queries - first);
  const int64_t rows = (count + kRows - 1) / kRows * kRows;
  const int64_t last_key = causal_ ? std::min(sizes_.keys, first + count) : sizes_.keys;
  float* scores = buffer;
  float* queries = scores + kQueries * row_length;
  float* results = queries + kQueries * sizes_.width;
  const float* q = runtime.at<const float>(q_.slot) + sample * q_.strides.sample + head * q_.strides.head;
  for (int64_t i = 0; i < count; ++i) {
    scaled(q + (first + i) * q_.strides.row, queries + i * sizes_.width, sizes_.width, scale_);
  }
  std::fill(queries + count * sizes_.width, queries + rows * sizes_.width, 0.0F);
  const float* keys =
      runtime.at<const float>(scratch_) + (sample * sizes_.key_heads + key_head) * sizes_.width * row_length;
  multiply(queries, sizes_.width, keys, row_length, scores, row_length, rows, padded(last_key), sizes_.width);

  float inverse[kQueries] = {};
  for (int64_t i = 0; i < rows; ++i) {
    float* row = scores + i * row_length;
    const int64_t seen = i >= count ? 0 : causal_ ? std::min(sizes_.keys, first + i + 1) : sizes_.keys;
    if (softcap_ > 0) {
      for (int64_t k = 0; k < seen; ++k) row[k] = std::tanh(row[k] / softcap_) * softcap_;
    }
    if (mask_.slot >= 0 && seen > 0) {
      const int64_t at = sample * mask_.sample + head * mask_.head + (first + i) * mask_.query;
      if (mask_.flags) {
        const auto* flags = runtime.at<const uint8_t>(mask_.slot) + at;
        for (int64_t k = 0; k < seen; ++k) {
          if (flags[k * mask_.key] == 0) row[k] = -std::numeric_limits<float>::infinity();
        }
      } else {
        const float* added = runtime.at<const float>(mask_.slot) + at;
        for (int64_t k = 0; k < seen; ++k) row[k] += added[k * mask_.key];
      }
    }
    std::fill(row + seen, row + last_key, 0.0F);
    if (seen == 0) continue;
    const float top = row_maximum(row, seen);
    if (std::isnan(top)) {
      inverse[i] = top;
      continue;
    }
    const float sum = exponentials(row, row, seen, top);
    // A query that may look at nothing yields zeros.
    inverse[i] = top == -std::numeric_limits<float>::infinity() ? 0 : 1 / sum;
  }
  const float* v = runtime.at<const float>(v_.slot) + sample * v_.strides.sample + key_head * v_.strides.head;
  multiply(scores, row_length, v, v_.strides.row, results, sizes_.value_width, rows, sizes_.value_width, last_key);
  float* out = runtime.at<float>(out_.slot) + sample * out_.strides.sample + head * out_.strides.head;
  for (int64_t i = 0; i < count; ++i) {
    scaled(results + i * sizes_.value_width, out + (first + i) * out_.strides.row, sizes_.value_width, inverse[i]);
  }
}

void AttentionAction::run(Runtime& runtime) {
  const auto* k = runtime.at<const float>(k_.slot);
  auto* packed = runtime.at<float>(scratch_);
  const int64_t row_length = padded(sizes_.keys);
  const int64_t head_size = sizes_.width * row_length;
  parallel_for(0, sizes_.samples * sizes_.key_heads, std::max<int64_t>(1, kGrain / head_size),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   pack_keys(k + i / sizes_.key_heads * k_.strides.sample + i % sizes_.key_heads * k_.strides.head,
                             packed + i * head_size);
                 }
               });
  const int64_t blocks = (sizes_.queries + kQueries - 1) / kQueries;
  const int64_t work = kQueries * sizes_.keys * (sizes_.width + sizes_.value_width);
  constexpr int64_t kWorthAThread = 512 * 1024;  // multiplications
  parallel_for(
      0, sizes_.samples * sizes_.heads * blocks, std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(work, 1)),
      [&](int64_t begin, int64_t end) {
        std::vector<float> buffer(static_cast<size_t>(kQueries * (row_length + sizes_.width + sizes_.value_width)));
        for (int64_t i = begin; i < end; ++i) {
          const int64_t head = i / blocks;
          attend(runtime, head / sizes_.heads, head % sizes_.heads, i % blocks * kQueries, buffer.data());
        }
      });
}

void RotaryAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_.slot);
  const auto* cosine = runtime.at<const float>(cosine_);
  const auto* sine = runtime.at<const float>(sine_);
  auto* out = runtime.at<float>(out_.slot);
  const int64_t pairs = sizes_.turned / 2;
  const int64_t row = sizes_.heads * sizes_.width;
  parallel_for(0, sizes_.samples * sizes_.tokens, std::max<int64_t>(1, kGrain / row), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t sample = i / sizes_.tokens, token = i % sizes_.tokens;
      const int64_t angle = (one_sample_ ? token : i) * pairs;
      for (int64_t head = 0; head < sizes_.heads; ++head) {
        const float* x = in + sample * in_.strides.sample + head * in_.strides.head + token * in_.strides.row;
        float* y = out + sample * out_.strides.sample + head * out_.strides.head + token * out_.strides.row;
        (interleaved_ ? turn_neighbours : turn_halves)(x, cosine + angle, sine + angle, y, pairs);
        std::copy(x + sizes_.turned, x + sizes_.width, y + sizes_.turned);
      }
    }
  });
}

void RowNormAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  const auto* scale = runtime.at<const float>(scale_);
  const auto* bias = bias_ < 0 ? nullptr : runtime.at<const float>(bias_);
  auto* out = runtime.at<float>(out_);
  const auto count = static_cast<float>(columns_);
  parallel_for(0, rows_, std::max<int64_t>(1, kGrain / columns_), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = in + row * columns_;
      const float centre = centred_ ? sum_of(x, columns_) / count : 0;
      const float inverse = 1 / std::sqrt(sum_of_squares(x, columns_, centre) / count + epsilon_);
      normalized(x, scale, bias, out + row * columns_, columns_, centre, inverse);
    }
  });
}

}  // namespace kaon
