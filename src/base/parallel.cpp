#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <vector>

#include "base/error.h"
#include "base/parallel_backend.h"

namespace kaon {

namespace {

int available_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

int& configured_threads() {
  static int count = available_cores();
  return count;
}

thread_local bool inside_parallel = false;
thread_local bool alone = false;

using Clock = std::chrono::steady_clock;

/// Beside a busy neighbour a thread may have to wait for its core for milliseconds, and all others wait for it at the
/// end of the loop. Where that wait outweighs the work, the caller works alone for so long that another try costs
/// little.
class Crowding {
 public:
  bool works_alone() const { return Clock::now().time_since_epoch().count() < until_.load(std::memory_order_relaxed); }

  void waited(Clock::duration work, Clock::duration wait) {
    constexpr auto kStall = std::chrono::milliseconds(2);  // longer than any wake-up
    if (wait < kStall || wait < 2 * work) return;
    until_.store((Clock::now() + 20 * wait).time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  std::atomic<Clock::rep> until_ = 0;
} crowding;

}  // namespace

OnThisThread::OnThisThread() : before_(alone) { alone = true; }
OnThisThread::~OnThisThread() { alone = before_; }

int thread_count() { return configured_threads(); }

void set_thread_count(int count) {
  if (count < 1 || count > 1024) {
    fail(ErrorCode::InvalidInput, "threads", "{} threads asked for; 1 to 1024 are possible", count);
  }
  configured_threads() = count;
}

void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (begin >= end) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t grains = (end - begin + grain - 1) / grain;
  const int64_t pieces = inside_parallel ? 1 : std::min<int64_t>(grains, thread_count());
  if (pieces == 1) {
    body(begin, end);
    return;
  }
  std::vector<std::exception_ptr> errors(static_cast<size_t>(pieces));
  const auto start = Clock::now();
  auto own_end = start;
  const auto run = [&](int piece) {
    const int64_t first = begin + grains * piece / pieces * grain;
    const int64_t last = std::min(end, begin + grains * (piece + 1) / pieces * grain);
    inside_parallel = true;
    try {
      body(first, last);
    } catch (...) {
      errors[static_cast<size_t>(piece)] = std::current_exception();
    }
    inside_parallel = false;
    if (piece == 0) own_end = Clock::now();
  };
  if (alone || crowding.works_alone()) {
    for (int piece = 0; piece < pieces; ++piece) run(piece);
  } else {
    adapt_waits();
    run_pieces(static_cast<int>(pieces), run);
    crowding.waited(own_end - start, Clock::now() - own_end);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace kaon
