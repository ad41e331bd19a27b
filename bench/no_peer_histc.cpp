#include "base/error.h"
#include "peer_histc.h"

namespace kaon::bench {

bool has_histc_peer() { return false; }

HistcPeer make_histc_peer(std::span<const float>, int64_t, double, double, int) {
  fail(ErrorCode::Unsupported, "histc", "this benchmark was built without libtorch");
}

}  // namespace kaon::bench
