// Steps on codes, and what they do.
#include <algorithm>
#include <array>
#include <bit>

#include "base/parallel.h"
#include "engine/plan/codes.h"
#include "engine/plan/lowering.h"
#include "engine/plan/simd.h"

namespace kaon {

namespace {

using Grid = FlatQuantizer::Grid;

constexpr int64_t kGrain = 32 * 1024;  // elements worth waking a second thread for
constexpr int64_t kChunk = 1024;       // elements that stay in the first-level cache between two steps of the work

/// round(x / step), half to even, within the grid: the code that numerics gives. No number has the lowest.
KAON_SIMD void encode(const float* in, uint8_t* out, int64_t count, Grid grid) {
  constexpr float kRound = 0x1.8p23F;  // a sum with it has no fraction
  const auto zero = std::bit_cast<int32_t>(kRound) + static_cast<int32_t>(grid.low);
  for (int64_t i = 0; i < count; ++i) {
    float k = in[i] / grid.step;
    k = k > grid.low ? k : grid.low;
    k = k < grid.high ? k : grid.high;
    out[i] = static_cast<uint8_t>(std::bit_cast<int32_t>(k + kRound) - zero);
  }
}

KAON_SIMD void decode(const uint8_t* in, float* out, int64_t count, Grid grid) {
  const auto low = static_cast<int32_t>(grid.low);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(in[i] + low) * grid.step;
}

KAON_SIMD void add_decoded(const uint8_t* a, Grid of_a, const uint8_t* b, Grid of_b, float* out, int64_t count) {
  const auto low_a = static_cast<int32_t>(of_a.low);
  const auto low_b = static_cast<int32_t>(of_b.low);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(a[i] + low_a) * of_a.step + static_cast<float>(b[i] + low_b) * of_b.step;
  }
}

KAON_SIMD void clip(float* values, int64_t count, QuantizeAction::Clip bounds) {
  for (int64_t i = 0; i < count; ++i) {
    const float x = values[i] < bounds.low ? bounds.low : values[i];
    values[i] = x > bounds.high ? bounds.high : x;
  }
}

}  // namespace

void EncodeAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const float>(in_);
  auto* out = runtime.at<uint8_t>(out_);
  parallel_for(0, count_, kGrain,
               [&](int64_t first, int64_t last) { encode(in + first, out + first, last - first, grid_); });
}

void DecodeAction::run(Runtime& runtime) {
  const auto* in = runtime.at<const uint8_t>(in_);
  auto* out = runtime.at<float>(out_);
  parallel_for(0, count_, kGrain,
               [&](int64_t first, int64_t last) { decode(in + first, out + first, last - first, grid_); });
}

void AddCodesAction::run(Runtime& runtime) {
  const auto* a = runtime.at<const uint8_t>(a_);
  const auto* b = runtime.at<const uint8_t>(b_);
  auto* out = runtime.at<uint8_t>(out_);
  parallel_for(0, count_, kGrain, [&](int64_t first, int64_t last) {
    std::array<float, kChunk> sums;
    for (int64_t begin = first; begin < last; begin += kChunk) {
      const int64_t count = std::min(kChunk, last - begin);
      add_decoded(a + begin, op_->in[0], b + begin, op_->in[1], sums.data(), count);
      for (const QuantizeAction::Clip& bounds : op_->clips) clip(sums.data(), count, bounds);
      encode(sums.data(), out + begin, count, op_->out);
    }
  });
}

void Lowering::lower_codes(const PlanOp& op) {
  const CodesOp& codes = *op.codes;
  const int32_t y = op.outputs[0];
  const bool gives_float = is_float(y);
  const auto define_result = [&] { return gives_float ? define(y, channels_last(facts(y).shape)) : define_plain(y); };
  const int64_t count = element_count(facts(y).shape);
  switch (codes.kind) {
    case CodesOp::Kind::Encode: {
      const int32_t in = request(op.inputs[0], channels_last(facts(op.inputs[0]).shape));
      const int32_t out = define_result();
      return emit(std::make_unique<EncodeAction>(codes.out, in, out, count), {in}, {out});
    }
    case CodesOp::Kind::Decode: {
      const int32_t in = request_plain(op.inputs[0]);
      const int32_t out = define_result();
      return emit(std::make_unique<DecodeAction>(codes.in[0], in, out, count), {in}, {out});
    }
    case CodesOp::Kind::Add: {
      const int32_t a = request_plain(op.inputs[0]);
      const int32_t b = request_plain(op.inputs[1]);
      const int32_t out = define_result();
      return emit(std::make_unique<AddCodesAction>(op.codes, a, b, out, count), {a, b}, {out});
    }
    case CodesOp::Kind::Conv: break;
  }
  const dnnl::primitive_desc& form = codes.convolution;
  const int32_t in = request_plain(op.inputs[0]);
  const int32_t out = define_result();
  auto action = std::make_unique<DnnlAction>(dnnl::primitive(form));
  action->slot(DNNL_ARG_SRC, form.query_md(dnnl::query::src_md), in);
  action->fixed(DNNL_ARG_WEIGHTS, packed(codes.weights, codes.weights_desc, form.query_md(dnnl::query::weights_md)));
  const Desc bias = plain_desc({codes.bias.numel()});
  action->fixed(DNNL_ARG_BIAS, packed(codes.bias, bias, bias));
  action->slot(DNNL_ARG_DST, form.query_md(dnnl::query::dst_md), out);
  emit(std::move(action), {in}, {out});
}

}  // namespace kaon
