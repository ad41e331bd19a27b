#include "engine/plan/row_product.h"

#include <algorithm>

#include "base/parallel.h"
#include "numerics/row_product.h"

namespace kaon {

void RowProductAction::run(Runtime& runtime) {
  constexpr int64_t kLine = 16;                  // results on one line of the cache
  constexpr int64_t kWorthAThread = 128 * 1024;  // multiplications
  const auto [rows, inputs, outputs] = sizes_;
  const auto* x = runtime.at<const float>(in_);
  auto* y = runtime.at<float>(out_);
  const float* bias = bias_.defined() ? bias_.data_ptr<float>() : nullptr;
  const at::ScalarType type = weights_.scalar_type();
  const StoredMatrix matrix{.data = weights_.data_ptr(),
                            .type = type == at::kFloat  ? FloatView::Type::Float32
                                    : type == at::kHalf ? FloatView::Type::Float16
                                                        : FloatView::Type::BFloat16,
                            .row_length = transposed_ ? inputs : outputs};
  parallel_for(0, (outputs + kLine - 1) / kLine, std::max<int64_t>(1, kWorthAThread / (kLine * inputs * rows)),
               [&, rows = rows, inputs = inputs, outputs = outputs](int64_t begin, int64_t end) {
                 // A part of the matrix stays in the cache for all rows.
                 const int64_t lines = rows == 1 ? end - begin : 1;
                 for (int64_t line = begin; line < end; line += lines) {
                   const int64_t first = line * kLine;
                   const int64_t count = std::min((line + lines) * kLine, outputs) - first;
                   for (int64_t row = 0; row < rows; ++row) {
                     (transposed_ ? dot_rows : sum_rows)(x + row * inputs, matrix, first,
                                                         bias == nullptr ? nullptr : bias + first,
                                                         y + row * outputs + first, count, inputs);
                   }
                 }
               });
}

void RowProductAction::exchange(const Exchanged& exchanged) {
  weights_ = current(weights_, exchanged);
  bias_ = current(bias_, exchanged);
}

}  // namespace kaon
