#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
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

}  // namespace

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
  run_pieces(static_cast<int>(pieces), [&](int piece) {
    const int64_t first = begin + grains * piece / pieces * grain;
    const int64_t last = std::min(end, begin + grains * (piece + 1) / pieces * grain);
    inside_parallel = true;
    try {
      body(first, last);
    } catch (...) {
      errors[static_cast<size_t>(piece)] = std::current_exception();
    }
    inside_parallel = false;
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace kaon
