#include "engine/thread_choice.h"

#include <sys/resource.h>

#include <algorithm>
#include <optional>

#include "base/parallel.h"
#include "base/stopwatch.h"
#include "engine/threads.h"

namespace kaon {

namespace {

constexpr double kShort = 2e-3;     // seconds; waking threads may cost more than they bring
constexpr double kProbeEvery = 40;  // so that trying the slower way costs a fortieth at most
constexpr int64_t kLongestWait = 100'000;

}  // namespace

bool ThreadChoice::all_threads() {
  if (!warm_ || !suspect_ || until_probe_ > 0) return all_;
  return !all_;
}

void ThreadChoice::ran(bool all, double seconds, int64_t preempted) {
  if (!warm_) {
    warm_ = true;
    return;
  }
  Times& mine = times_[all ? 1 : 0];
  mine.before = mine.last;
  mine.last = seconds;
  const bool probed = all != all_;
  // Nobody took a core from a long run: threads do what they can. Alone, the neighbour may have gone at any time.
  suspect_ = !all_ || probed || seconds < kShort || preempted > 1 || (suspect_ && until_probe_ > 0);
  if (until_probe_ > 0) --until_probe_;
  if (!times(!all_).known()) return;
  const bool other_is_better = times(!all_).estimate() < times(all_).estimate();
  if (other_is_better) all_ = !all_;
  if (probed || other_is_better) {
    const double ratio = times(!all_).estimate() / std::max(times(all_).estimate(), 1e-9);
    until_probe_ = static_cast<int64_t>(std::min<double>(kProbeEvery * ratio, kLongestWait));
  }
}

int64_t preemptions() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

void run_on_chosen_threads(ThreadChoice& choice, const std::function<void()>& work, double amount) {
  if (thread_count() == 1) return work();
  const bool all_threads = choice.all_threads();
  std::optional<CallingThreadOnly> alone;
  if (!all_threads) alone.emplace();
  const int64_t preempted = preemptions();
  const Stopwatch watch;
  work();
  choice.ran(all_threads, watch.seconds() / amount, preemptions() - preempted);
}

}  // namespace kaon
