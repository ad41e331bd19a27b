#include "peer_histc.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace kaon::bench {

bool has_histc_peer() { return true; }

HistcPeer make_histc_peer(std::span<const float> values, int64_t bins, double min, double max, int threads) {
  at::set_num_threads(threads);
  const at::Tensor tensor = at::from_blob(const_cast<float*>(values.data()), {std::ssize(values)}, at::kFloat);
  const auto histc = [=] { return at::histc(tensor, bins, min, max); };
  const auto count = [=] {
    const at::Tensor counts = histc().to(at::kLong);
    return std::vector<int64_t>(counts.data_ptr<int64_t>(), counts.data_ptr<int64_t>() + counts.numel());
  };
  return {count, [=] { histc(); }};
}

}  // namespace kaon::bench
