#include "report/histogram_bars.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace kaon {

namespace {

/// Joins neighbouring bins; the edge nearest to zero stays one, so that symmetric data look symmetric.
Bars join_plain(const HistogramSeries& series, int64_t limit) {
  const auto n = static_cast<int64_t>(series.counts.size());
  const int64_t group = (n + limit - 1) / limit;
  const auto nearest = std::min_element(series.edges.begin(), series.edges.end(),
                                        [](double a, double b) { return std::abs(a) < std::abs(b); });
  const int64_t offset = (nearest - series.edges.begin()) % group;
  Bars bars;
  bars.width = (series.edges.back() - series.edges.front()) / static_cast<double>(n) * static_cast<double>(group);
  bars.edges.push_back(series.edges.front());
  for (int64_t begin = 0; begin < n;) {
    const int64_t end = std::min(n, begin == 0 && offset > 0 ? offset : begin + group);
    const double count =
        static_cast<double>(std::accumulate(series.counts.begin() + begin, series.counts.begin() + end, int64_t{0}));
    bars.edges.push_back(series.edges[static_cast<size_t>(end)]);
    bars.heights.push_back(count / (bars.edges.back() - series.edges[static_cast<size_t>(begin)]));
    begin = end;
  }
  return bars;
}

/// The multiples of `step` that bin i holds, as numerics/histogram.h shares edges out; at least the nearest one.
std::pair<int64_t, int64_t> codes_in(const HistogramSeries& series, size_t i) {
  const double low = series.edges[i] / series.step;
  const double high = series.edges[i + 1] / series.step;
  constexpr double kRounding = 1e-4;
  const double shift = low + high > 0 ? -kRounding : kRounding;
  const auto first = static_cast<int64_t>(std::ceil(low + shift));
  const auto last = static_cast<int64_t>(std::floor(high + shift));
  if (first <= last) return {first, last};
  const auto nearest = static_cast<int64_t>(std::floor((low + high) / 2 + 0.5));
  return {nearest, nearest};
}

/// One bar for each code, or for each odd number of codes, centred on multiples of that: bars that hold one code more
/// than their neighbours would look like structure in the data.
Bars join_codes(const HistogramSeries& series, int64_t limit) {
  const double span = series.edges.back() - series.edges.front();
  auto joined = static_cast<int64_t>(std::ceil(span / series.step / static_cast<double>(limit)));
  joined += 1 - joined % 2;
  Bars bars;
  bars.width = static_cast<double>(joined) * series.step;
  const auto bar_of = [&](int64_t code) {
    return static_cast<int64_t>(std::floor(static_cast<double>(code) / static_cast<double>(joined) + 0.5));
  };
  const int64_t first = bar_of(codes_in(series, 0).first);
  const int64_t last = bar_of(codes_in(series, series.counts.size() - 1).second);
  for (int64_t k = first; k <= last + 1; ++k) bars.edges.push_back((static_cast<double>(k) - 0.5) * bars.width);
  bars.heights.assign(static_cast<size_t>(last - first + 1), 0);
  for (size_t i = 0; i < series.counts.size(); ++i) {
    const auto [low, high] = codes_in(series, i);
    const double each = static_cast<double>(series.counts[i]) / static_cast<double>(high - low + 1) / bars.width;
    for (int64_t code = low; code <= high; ++code) bars.heights[static_cast<size_t>(bar_of(code) - first)] += each;
  }
  return bars;
}

}  // namespace

Bars join_bins(const HistogramSeries& series, int64_t limit) {
  // With many codes in a bar, one more or less is not seen.
  const double codes = (series.edges.back() - series.edges.front()) / series.step;
  return series.step > 0 && codes < 16 * static_cast<double>(limit) ? join_codes(series, limit)
                                                                    : join_plain(series, limit);
}

}  // namespace kaon
