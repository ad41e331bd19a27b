#include "engine/plan/cached_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "engine/plan/simd.h"
#include "numerics/exponentials.h"

namespace kaon {

namespace {

constexpr int64_t kLanes = 8;
constexpr int64_t kRows = 4;  // that are read together

using Lanes = float __attribute__((vector_size(kLanes * sizeof(float)), aligned(4)));

/// out[i] = x · rows[i]
KAON_SIMD void dots(const float* x, const float* rows, int64_t stride, int64_t count, int64_t width, float* out) {
  for (int64_t first = 0; first < count; first += kRows) {
    const float* row[kRows];
    // Rows beyond the last repeat it.
    for (int64_t r = 0; r < kRows; ++r) row[r] = rows + std::min(first + r, count - 1) * stride;
    Lanes sums[kRows] = {};
    int64_t i = 0;
    for (; i + kLanes <= width; i += kLanes) {
      const Lanes left = *reinterpret_cast<const Lanes*>(x + i);
      for (int64_t r = 0; r < kRows; ++r) sums[r] += left * *reinterpret_cast<const Lanes*>(row[r] + i);
    }
    for (int64_t r = 0; r < std::min(kRows, count - first); ++r) {
      float sum = 0;
      for (int64_t lane = 0; lane < kLanes; ++lane) sum += sums[r][lane];
      for (int64_t rest = i; rest < width; ++rest) sum += x[rest] * row[r][rest];
      out[first + r] = sum;
    }
  }
}

/// out += Σ weights[i] · rows[i]
KAON_SIMD void add_rows(const float* weights, const float* rows, int64_t stride, int64_t count, int64_t width,
                        float* out) {
  for (int64_t first = 0; first < count; first += kRows) {
    const float* row[kRows];
    float weight[kRows];
    for (int64_t r = 0; r < kRows; ++r) {
      row[r] = rows + std::min(first + r, count - 1) * stride;
      weight[r] = first + r < count ? weights[first + r] : 0;
    }
    const int64_t last = std::min(kRows, count - first);
    int64_t i = 0;
    if (last == kRows) {
      for (; i + kLanes <= width; i += kLanes) {
        auto* to = reinterpret_cast<Lanes*>(out + i);
        Lanes sum = *to;
        for (int64_t r = 0; r < kRows; ++r) sum += weight[r] * *reinterpret_cast<const Lanes*>(row[r] + i);
        *to = sum;
      }
    }
    for (; i < width; ++i) {
      for (int64_t r = 0; r < last; ++r) out[i] += weight[r] * row[r][i];
    }
  }
}

}  // namespace

std::vector<CachedAttentionAction::Piece> CachedAttentionAction::seen(const Runtime& runtime, int64_t sample,
                                                                      int64_t head, int64_t query) const {
  std::vector<Piece> pieces;
  const auto add = [&](int64_t begin, int64_t end) {
    const int64_t past_end = std::min(end, sizes_.past), new_begin = std::max(begin, sizes_.past);
    if (begin < past_end) pieces.push_back({false, begin, past_end - begin});
    if (new_begin < end) pieces.push_back({true, new_begin - sizes_.past, end - new_begin});
  };
  const int64_t end = sizes_.past + (causal_ ? std::min(sizes_.keys, query + 1) : sizes_.keys);
  if (mask_.slot < 0) {
    add(0, end);
    return pieces;
  }
  const auto* flags =
      runtime.at<const uint8_t>(mask_.slot) + sample * mask_.sample + head * mask_.head + query * mask_.query;
  for (int64_t begin = 0; begin < end;) {
    while (begin < end && flags[begin * mask_.key] == 0) ++begin;
    int64_t last = begin;
    while (last < end && flags[last * mask_.key] != 0) ++last;
    add(begin, last);
    begin = last;
  }
  return pieces;
}

void CachedAttentionAction::attend(const Runtime& runtime, int64_t sample, int64_t head, int64_t query,
                                   float* scores) const {
  const int64_t key_head = head / (sizes_.heads / sizes_.key_heads);
  const auto row_of = [&](const Operand& operand, int64_t of_head, int64_t row) {
    return runtime.at<float>(operand.slot) + sample * operand.strides.sample + of_head * operand.strides.head +
           row * operand.strides.row;
  };
  const std::vector<Piece> pieces = seen(runtime, sample, head, query);
  const float* q = row_of(operands_.q, head, query);
  int64_t count = 0;
  for (const Piece& piece : pieces) {
    const Operand& keys = piece.is_new ? operands_.k : operands_.past_k;
    dots(q, row_of(keys, key_head, piece.first), keys.strides.row, piece.count, sizes_.width, scores + count);
    count += piece.count;
  }
  float* out = row_of(operands_.out, head, query);
  std::fill_n(out, sizes_.value_width, 0.0F);
  if (count == 0) return;
  for (int64_t i = 0; i < count; ++i) scores[i] *= scale_;
  if (softcap_ > 0) {
    for (int64_t i = 0; i < count; ++i) scores[i] = std::tanh(scores[i] / softcap_) * softcap_;
  }
  const float top = row_maximum(scores, count);
  if (std::isnan(top)) {
    std::fill_n(out, sizes_.value_width, top);
    return;
  }
  const float sum = exponentials(scores, scores, count, top);
  // A query that may look at nothing yields zeros.
  const float inverse = top == -std::numeric_limits<float>::infinity() ? 0 : 1 / sum;
  for (int64_t i = 0; i < count; ++i) scores[i] *= inverse;
  const float* weights = scores;
  for (const Piece& piece : pieces) {
    const Operand& values = piece.is_new ? operands_.v : operands_.past_v;
    add_rows(weights, row_of(values, key_head, piece.first), values.strides.row, piece.count, sizes_.value_width, out);
    weights += piece.count;
  }
}

void CachedAttentionAction::run(Runtime& runtime) {
  constexpr int64_t kWorthAThread = 256 * 1024;  // multiplications
  const int64_t tokens = sizes_.past + sizes_.keys;
  const int64_t work = std::max<int64_t>(1, tokens * (sizes_.width + sizes_.value_width));
  parallel_for(0, sizes_.samples * sizes_.heads * sizes_.queries, std::max<int64_t>(1, kWorthAThread / work),
               [&](int64_t begin, int64_t end) {
                 std::vector<float> scores(static_cast<size_t>(tokens));
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t head = i / sizes_.queries;
                   attend(runtime, head / sizes_.heads, head % sizes_.heads, i % sizes_.queries, scores.data());
                 }
               });
}

}  // namespace kaon
