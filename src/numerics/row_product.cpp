#include "numerics/row_product.h"

#include <algorithm>

#include "numerics/half.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/row_product.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kaon::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Vec = hn::Vec<Floats>;
constexpr int64_t kRows = 4;  // that sums() reads together

// The kinds of stored numbers: a vector of them, or a single one, as float32.
struct Single {
  using Stored = float;
  static HWY_INLINE Vec load(const float* from) { return hn::LoadU(Floats(), from); }
  static float one(float value) { return value; }
};

struct Brain {
  using Stored = uint16_t;
  static HWY_INLINE Vec load(const uint16_t* from) {
    const Floats d;
    const hn::RebindToUnsigned<Floats> bits;
    const hn::Rebind<uint16_t, Floats> narrow;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(bits, hn::LoadU(narrow, from))));
  }
  static float one(uint16_t value) { return bfloat16_to_float32(value); }
};

struct Half {
  using Stored = uint16_t;
  static HWY_INLINE Vec load(const uint16_t* from) {
    const Floats d;
    const hn::Rebind<uint16_t, Floats> narrow;
    const auto stored = hn::LoadU(narrow, from);
#if HWY_TARGET <= HWY_AVX2
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(d, hn::BitCast(halves, stored));
#else
    // Highway's own promotion turns Inf and NaN into numbers on targets without F16C.
    const hn::RebindToUnsigned<Floats> bits;
    const auto wide = hn::PromoteTo(bits, stored);
    const auto magnitude = hn::And(wide, hn::Set(bits, 0x7FFFU));
    const auto infinite = hn::Set(bits, 0x7C00U);
    const auto special = hn::Eq(hn::And(magnitude, infinite), infinite);
    // From one exponent's bias to the other's, subnormal numbers too.
    const auto rebased = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112F));
    const auto number = hn::Or(hn::BitCast(bits, rebased), hn::IfThenElseZero(special, hn::Set(bits, 0x7F800000U)));
    return hn::BitCast(d, hn::Or(number, hn::ShiftLeft<16>(hn::AndNot(hn::Set(bits, 0x7FFFU), wide))));
#endif
  }
  static float one(uint16_t value) { return float16_to_float32(value); }
};

// Row after row: memory that is read in one stream comes twice as fast as four rows at once.
template <typename Kind>
void dots(const float* HWY_RESTRICT x, const typename Kind::Stored* HWY_RESTRICT matrix, int64_t row_length,
          const float* bias, float* HWY_RESTRICT y, int64_t count, int64_t width) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto product = [&](const typename Kind::Stored* row, int64_t at, Vec sum)
                           HWY_ATTR { return hn::MulAdd(hn::LoadU(d, x + at), Kind::load(row + at), sum); };
  for (int64_t r = 0; r < count; ++r) {
    const auto* row = matrix + r * row_length;
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    int64_t i = 0;
    for (; i + 4 * lanes <= width; i += 4 * lanes) {
      sum0 = product(row, i, sum0);
      sum1 = product(row, i + lanes, sum1);
      sum2 = product(row, i + 2 * lanes, sum2);
      sum3 = product(row, i + 3 * lanes, sum3);
    }
    for (; i + lanes <= width; i += lanes) sum0 = product(row, i, sum0);
    float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
    for (; i < width; ++i) sum += x[i] * Kind::one(row[i]);
    y[r] = bias == nullptr ? sum : sum + bias[r];
  }
}

template <typename Kind>
void sums(const float* HWY_RESTRICT x, const typename Kind::Stored* HWY_RESTRICT matrix, int64_t row_length,
          const float* bias, float* HWY_RESTRICT y, int64_t count, int64_t rows) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (bias == nullptr) {
    std::fill_n(y, count, 0.0F);
  } else {
    std::copy_n(bias, count, y);
  }
  int64_t k = 0;
  for (; k + kRows <= rows; k += kRows) {
    const auto* row = matrix + k * row_length;
    const auto x0 = hn::Set(d, x[k]), x1 = hn::Set(d, x[k + 1]), x2 = hn::Set(d, x[k + 2]), x3 = hn::Set(d, x[k + 3]);
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      auto sum = hn::LoadU(d, y + i);
      sum = hn::MulAdd(x0, Kind::load(row + i), sum);
      sum = hn::MulAdd(x1, Kind::load(row + row_length + i), sum);
      sum = hn::MulAdd(x2, Kind::load(row + 2 * row_length + i), sum);
      sum = hn::MulAdd(x3, Kind::load(row + 3 * row_length + i), sum);
      hn::StoreU(sum, d, y + i);
    }
    for (; i < count; ++i) {
      for (int64_t r = 0; r < kRows; ++r) y[i] += x[k + r] * Kind::one(row[r * row_length + i]);
    }
  }
  for (; k < rows; ++k) {
    for (int64_t i = 0; i < count; ++i) y[i] += x[k] * Kind::one(matrix[k * row_length + i]);
  }
}

void dots_single(const float* x, const float* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
                 int64_t width) {
  dots<Single>(x, matrix, row_length, bias, y, count, width);
}
void dots_brain(const float* x, const uint16_t* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
                int64_t width) {
  dots<Brain>(x, matrix, row_length, bias, y, count, width);
}
void dots_half(const float* x, const uint16_t* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
               int64_t width) {
  dots<Half>(x, matrix, row_length, bias, y, count, width);
}
void sums_single(const float* x, const float* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
                 int64_t rows) {
  sums<Single>(x, matrix, row_length, bias, y, count, rows);
}
void sums_brain(const float* x, const uint16_t* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
                int64_t rows) {
  sums<Brain>(x, matrix, row_length, bias, y, count, rows);
}
void sums_half(const float* x, const uint16_t* matrix, int64_t row_length, const float* bias, float* y, int64_t count,
               int64_t rows) {
  sums<Half>(x, matrix, row_length, bias, y, count, rows);
}

}  // namespace
}  // namespace kaon::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kaon {
namespace {

HWY_EXPORT(dots_single);
HWY_EXPORT(dots_brain);
HWY_EXPORT(dots_half);
HWY_EXPORT(sums_single);
HWY_EXPORT(sums_brain);
HWY_EXPORT(sums_half);

}  // namespace

void dot_rows(const float* x, const StoredMatrix& matrix, int64_t first, const float* bias, float* y, int64_t count,
              int64_t width) {
  const int64_t length = matrix.row_length;
  const auto* wide = static_cast<const float*>(matrix.data) + first * length;
  const auto* narrow = static_cast<const uint16_t*>(matrix.data) + first * length;
  switch (matrix.type) {
    case FloatView::Type::Float32: return HWY_DYNAMIC_DISPATCH(dots_single)(x, wide, length, bias, y, count, width);
    case FloatView::Type::Float16: return HWY_DYNAMIC_DISPATCH(dots_half)(x, narrow, length, bias, y, count, width);
    case FloatView::Type::BFloat16: return HWY_DYNAMIC_DISPATCH(dots_brain)(x, narrow, length, bias, y, count, width);
  }
}

void sum_rows(const float* x, const StoredMatrix& matrix, int64_t first, const float* bias, float* y, int64_t count,
              int64_t rows) {
  const int64_t length = matrix.row_length;
  const auto* wide = static_cast<const float*>(matrix.data) + first;
  const auto* narrow = static_cast<const uint16_t*>(matrix.data) + first;
  switch (matrix.type) {
    case FloatView::Type::Float32: return HWY_DYNAMIC_DISPATCH(sums_single)(x, wide, length, bias, y, count, rows);
    case FloatView::Type::Float16: return HWY_DYNAMIC_DISPATCH(sums_half)(x, narrow, length, bias, y, count, rows);
    case FloatView::Type::BFloat16: return HWY_DYNAMIC_DISPATCH(sums_brain)(x, narrow, length, bias, y, count, rows);
  }
}

}  // namespace kaon
#endif
