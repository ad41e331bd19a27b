#pragma once
#include <cstdint>
#include <vector>

#include "report/charts.h"

namespace kaon {

/// Bars side by side: bar i covers edges[i] to edges[i + 1].
struct Bars {
  std::vector<double> edges;
  std::vector<double> heights;  ///< counts per unit of x
  double width = 0;             ///< of all but perhaps the first and the last
};

/// About `limit` bars at most that show a histogram, which is not empty: bins are joined, and where the series has a
/// step, bars follow the codes.
Bars join_bins(const HistogramSeries& series, int64_t limit);

}  // namespace kaon
