#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace kaon::bench {

/// ATen's histc: `count` gives the counts of one call, `run` is what to time.
struct HistcPeer {
  std::function<std::vector<int64_t>()> count;
  std::function<void()> run;
};

/// False where the benchmark was built without libtorch; make_histc_peer then throws Unsupported.
bool has_histc_peer();
HistcPeer make_histc_peer(std::span<const float> values, int64_t bins, double min, double max, int threads);

}  // namespace kaon::bench
