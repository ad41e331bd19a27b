#pragma once
#include <array>
#include <cstdint>
#include <functional>

namespace kaon {

/// Decides, from how long runs of the same work took, whether the next one goes on all threads or on the calling one
/// alone. Alone is quicker where the work is tiny, and where another process keeps a core busy: a thread that has lost
/// its core holds up all others at the end of every loop.
class ThreadChoice {
 public:
  /// Whether the next run should use all threads.
  bool all_threads();
  /// What the run took. `preempted`: how often a thread of this process lost its core meanwhile.
  void ran(bool all_threads, double seconds, int64_t preempted);

 private:
  struct Times {
    double last = -1, before = -1;  ///< seconds; -1: not known
    bool known() const { return last >= 0; }
    /// The better of two: one hiccup is nothing to go by.
    double estimate() const { return before >= 0 && before < last ? before : last; }
  };
  const Times& times(bool all) const { return times_[all ? 1 : 0]; }

  std::array<Times, 2> times_;
  bool warm_ = false;        ///< the first run pays for what the later ones reuse
  bool all_ = true;          ///< the better way so far
  bool suspect_ = false;     ///< the other way might be better
  int64_t until_probe_ = 0;  ///< runs before the other way is tried again
};

/// Does the work on the threads that the choice says and tells it how long that took. `amount` says how much work it is
/// where one choice serves runs of different length.
void run_on_chosen_threads(ThreadChoice& choice, const std::function<void()>& work, double amount = 1);

/// Of all threads of this process so far.
int64_t preemptions();

}  // namespace kaon
