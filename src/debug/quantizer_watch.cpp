#include "debug/quantizer_watch.h"

#include <algorithm>
#include <mutex>

#include "base/parallel.h"
#include "quant/describe.h"

namespace kaon {
namespace {

constexpr int64_t kPiece = 8 * kBlock;  // elements; four arrays of it stay in the second-level cache

/// What one piece adds to sums that depend on the order.
struct PieceSums {
  Moments input;
  ErrorMetrics io, ref_input, ref_output, local;
  ClipCounts clips;
};

}  // namespace

struct QuantizerWatch::Values {
  Shape shape;
  std::span<const float> x, q, r;
  std::span<const float> l;  ///< empty: made piece by piece
  bool constant = false;     ///< r is x, l is q
};

QuantizerWatch::QuantizerWatch(const Quantizer& quantizer, ChannelPlace place, bool histograms)
    : quantizer_(quantizer), place_(place), histograms_(histograms) {
  result_.id = quantizer.id;
  result_.tensor = quantizer.tensor;
  result_.kind = quantizer.kind;
  result_.format = quantizer.spec.format;
  result_.description = describe(quantizer);
  result_.dynamic = quantizer.dynamic;
  result_.scale = quantizer.params.scale;
  result_.zero_point = quantizer.params.zero_point;
  result_.representable = representable_range(quantizer);
  result_.step = code_step(quantizer);
}

int64_t QuantizerWatch::axis_for(int64_t rank) const {
  const int64_t last = std::max<int64_t>(rank - 1, 0);
  const bool second = place_ == ChannelPlace::Second || (place_ == ChannelPlace::ByRank && rank >= 4);
  return second ? std::min<int64_t>(1, last) : last;
}

void QuantizerWatch::see(const Tensor& input, const Tensor& output, const Tensor& reference) {
  Values values{input.shape(), input.as<float>(), output.as<float>(), reference.as<float>(), {}, false};
  const bool piecewise = quantizer_.params.scale.size() == 1 && quantizer_.spec.rounding != Rounding::Stochastic;
  if (!piecewise) {
    local_.resize(values.r.size());
    if (quantizer_.params.scale.empty()) {
      fake_quantize(values.r, local_, values.shape, quantizer_.spec);
    } else {
      fake_quantize(values.r, local_, values.shape, quantizer_.spec, params_for(quantizer_, values.shape));
    }
    values.l = local_;
  }
  if (result_.shape.empty()) {
    result_.shape = values.shape;
    result_.channel_axis = axis_for(input.rank());
  }
  sweep(values);
  const ChannelView view = ChannelView::of(values.shape, axis_for(input.rank()));
  channels_.update(values.x, values.q, view);
  if (histograms_) means_.update(values.r, view);
}

void QuantizerWatch::see_constant(const Tensor& exact, const Tensor& rounded, int64_t axis) {
  local_.resize(static_cast<size_t>(exact.size()));
  quantizer_.apply(rounded.as<float>(), local_, exact.shape());
  const std::span<const float> x = exact.as<float>();
  result_.shape = exact.shape();
  result_.channel_axis = axis;
  sweep({exact.shape(), x, local_, x, local_, true});
  const ChannelView whole{.inner = exact.size()};
  channels_.update(x, local_, quantizer_.kind == Slot::Bias ? whole : ChannelView::of(exact.shape(), axis));
  local_ = {};
}

void QuantizerWatch::sweep(const Values& values) {
  const Limits limits(quantizer_, values.x, values.shape);
  const int64_t size = std::ssize(values.x);
  std::vector<PieceSums> sums(static_cast<size_t>((size + kPiece - 1) / kPiece));
  std::mutex mutex;
  parallel_for(0, std::ssize(sums), 1, [&](int64_t begin, int64_t end) {
    Histogram input(QuantizerDebug::kBins), output(QuantizerDebug::kBins), reference(QuantizerDebug::kBins);
    float made[kPiece];
    for (int64_t piece = begin; piece < end; ++piece) {
      PieceSums& sum = sums[static_cast<size_t>(piece)];
      const int64_t from = piece * kPiece;
      const int64_t to = std::min(size, from + kPiece);
      const auto part = [&](std::span<const float> all) {
        return all.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from));
      };
      const std::span<const float> x = part(values.x), q = part(values.q), r = part(values.r);
      sum.input.update(x);
      sum.io.update(q, x);
      limits.count(values.x, values.q, from, to, sum.clips);
      if (histograms_) {
        input.update(x);
        output.update(q);
      }
      if (values.constant) {
        sum.ref_input.update(x, x);
        continue;
      }
      std::span<const float> l(made, r.size());
      if (values.l.empty()) {
        fake_quantize(r, std::span(made, r.size()), Shape{std::ssize(r)}, quantizer_.spec, quantizer_.params);
      } else {
        l = part(values.l);
      }
      sum.ref_input.update(x, r);
      sum.ref_output.update(q, r);
      sum.local.update(l, r);
      if (histograms_) reference.update(r);
    }
    const std::lock_guard lock(mutex);
    if (histograms_) {
      result_.input_histogram.merge(input);
      result_.output_histogram.merge(output);
      result_.reference_histogram.merge(reference);
    }
  });
  for (const PieceSums& sum : sums) {
    result_.input.merge(sum.input);
    result_.io.merge(sum.io);
    result_.ref_input.merge(sum.ref_input);
    result_.ref_output.merge(values.constant ? sum.io : sum.ref_output);
    result_.local.merge(values.constant ? sum.io : sum.local);
    result_.clips.clipped += sum.clips.clipped;
    result_.clips.nonzero += sum.clips.nonzero;
    result_.clips.zeroed += sum.clips.zeroed;
    result_.clips.clip_squared_error += sum.clips.clip_squared_error;
    result_.clips.round_squared_error += std::max(0.0, sum.io.sum_squared_error - sum.clips.clip_squared_error);
  }
}

QuantizerDebug QuantizerWatch::finish() {
  means_.finish();
  result_.channels = channels_.stats();
  result_.reference_absmean_rows = means_.over_rows();
  result_.reference_absmean_channels = means_.over_channels();
  return std::move(result_);
}

}  // namespace kaon
