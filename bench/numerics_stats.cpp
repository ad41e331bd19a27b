// Streaming statistics: moments and error metrics beside a plain sum, the histogram beside ATen's histc.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/parallel.h"
#include "bench.h"
#include "numerics/error_metrics.h"
#include "numerics/histogram.h"
#include "numerics/moments.h"
#include "peer_histc.h"

namespace kaon::bench {

namespace {

constexpr int64_t kCount = int64_t{64} << 20;
constexpr int64_t kBins = 2048;

using Buffer = std::shared_ptr<std::vector<float>>;

/// Bell-shaped, in about ±4: the sum of four uniform numbers.
Buffer make_data(uint64_t seed) {
  auto data = std::make_shared<std::vector<float>>(kCount);
  parallel_for(0, kCount, 1 << 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      uint64_t state = (static_cast<uint64_t>(i) + seed) * 0x9e3779b97f4a7c15u;
      state ^= state >> 29;
      state *= 0xbf58476d1ce4e5b9u;
      state ^= state >> 32;
      float sum = -131069.5f;  // half a step off every bin edge
      for (int shift = 0; shift < 64; shift += 16) sum += static_cast<float>(state >> shift & 0xffff);
      (*data)[static_cast<size_t>(i)] = sum * 0x1p-15f;
    }
  });
  return data;
}

float sum_of(const float* values, int64_t count) {
  constexpr int64_t kLanes = 64;  // independent sums, which the compiler turns into vectors
  float sums[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= count; i += kLanes) {
    for (int64_t j = 0; j < kLanes; ++j) sums[j] += values[i + j];
  }
  return std::accumulate(sums, sums + kLanes, 0.0f);
}

void read_all(const std::vector<float>& data) {
  parallel_for(0, std::ssize(data), 1 << 16, [&](int64_t begin, int64_t end) {
    const volatile float keep = sum_of(data.data() + begin, end - begin);
    static_cast<void>(keep);
  });
}

void expect_close(double value, double expected, double tolerance, const char* what) {
  if (std::fabs(value - expected) <= tolerance * std::fabs(expected)) return;
  fail(ErrorCode::Numeric, what, "is {}; {} expected", value, expected);
}

Work moments_work() {
  const Buffer data = make_data(1);
  const auto check = [data] {
    long double sum = 0, squares = 0;
    for (const float value : *data) sum += value;
    const long double mean = sum / kCount;
    for (const float value : *data) squares += (value - mean) * (value - mean);
    Moments moments;
    moments.update(*data);
    expect_close(moments.mean, static_cast<double>(mean), 1e-9, "mean");
    expect_close(moments.variance(), static_cast<double>(squares / kCount), 1e-12, "variance");
  };
  return {check, [data] { Moments().update(*data); }, [data] { read_all(*data); }};
}

Work error_work() {
  const Buffer data = make_data(1);
  const Buffer other = make_data(2);
  const auto check = [data, other] {
    long double squares = 0;
    for (size_t i = 0; i < data->size(); ++i) {
      const long double error = static_cast<long double>((*data)[i]) - (*other)[i];
      squares += error * error;
    }
    ErrorMetrics metrics;
    metrics.update(*data, *other);
    expect_close(metrics.mse(), static_cast<double>(squares / kCount), 1e-12, "mse");
  };
  const auto peer = [data, other] {
    read_all(*data);
    read_all(*other);
  };
  return {check, [data, other] { ErrorMetrics().update(*data, *other); }, peer};
}

Work histogram_work(int threads) {
  const Buffer data = make_data(1);
  Moments range;
  range.update(*data);
  const HistcPeer peer = make_histc_peer(*data, kBins, range.min, range.max, threads);
  const auto check = [data] {
    Histogram histogram(kBins);
    histogram.update(*data);
    // histc over the edges of the histogram must find the same counts.
    const HistcPeer same = make_histc_peer(*data, std::ssize(histogram.counts()), histogram.edge(0),
                                           histogram.edge(std::ssize(histogram.counts())), 1);
    const std::vector<int64_t> expected = same.count();
    if (!std::ranges::equal(histogram.counts(), expected)) {
      fail(ErrorCode::Numeric, "histogram", "the counts are not those of histc");
    }
  };
  return {check, [data] { Histogram(kBins).update(*data); }, peer.run};
}

const bool kAdded = add([](Cases& cases) {
  const double elements = kCount * 1e-9;
  for (const int threads : {1, 2}) {
    cases.push_back({fmt::format("moments/64Mi/{}t", threads), "sum", "Gelem/s", elements, threads, moments_work});
  }
  cases.push_back({"error_metrics/64Mi/2t", "sum", "Gelem/s", elements, 2, error_work});
  if (!has_histc_peer()) {
    fmt::print(stderr, "histogram2048 left out: built without libtorch, whose histc is its peer\n");
    return;
  }
  for (const int threads : {1, 2}) {
    cases.push_back({fmt::format("histogram2048/64Mi/{}t", threads), "ATen histc", "Gelem/s", elements, threads,
                     [=] { return histogram_work(threads); }});
  }
});

}  // namespace

}  // namespace kaon::bench
