#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/parallel.h"
#include "base/parallel_backend.h"

namespace kaon {
namespace {

using Clock = std::chrono::steady_clock;

/// libgomp's idle threads spin for milliseconds before they sleep: right on an idle machine, where the next loop then
/// starts at once, and wrong beside a busy neighbour, where they hold the core that a working thread waits for. libgomp
/// spins a thousand times shorter while it has more threads than there are cores. So where this process loses its cores
/// again and again, a team of idle threads is kept for a while.
class Waits {
 public:
  void look() {
    const Clock::time_point now = Clock::now();
    if (now.time_since_epoch().count() < next_.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(looking_, std::try_to_lock);
    if (!lock) return;
    next_.store((now + kLookEvery).time_since_epoch().count(), std::memory_order_relaxed);
    const double waited = seconds_without_a_core();
    const double lost = (waited - waited_) / std::chrono::duration<double>(now - looked_).count();
    waited_ = waited;
    looked_ = now;
    if (idle_team_) {
      if (now >= until_) release();
    } else if (lost > kCrowded) {
      hold(now);
    } else {
      hold_for_ = kHoldFirst;
    }
  }

 private:
  static constexpr auto kLookEvery = std::chrono::milliseconds(50);
  static constexpr std::chrono::milliseconds kHoldFirst{100}, kHoldMost{2000};
  static constexpr double kCrowded = 0.2;  ///< seconds a second; neighbours that are less urgent take a hundredth

  /// That threads of this process wanted one, so far; 0 where the kernel does not say.
  static double seconds_without_a_core() {
    double total = 0;
    std::error_code error;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
      double ran = 0, waited = 0;
      std::ifstream(thread.path() / "schedstat") >> ran >> waited;
      total += waited * 1e-9;
    }
    return total;
  }

  void hold(Clock::time_point now) {
    const int threads = std::max(2, omp_get_num_procs() - thread_count() + 2);
    until_ = now + hold_for_;
    hold_for_ = std::min(2 * hold_for_, kHoldMost);
    idle_team_ = true;
    try {
      std::thread([this, threads] {
#pragma omp parallel num_threads(threads)
        { std::atomic_signal_fence(std::memory_order_seq_cst); }
        std::unique_lock lock(holding_);
        released_.wait(lock, [&] { return !idle_team_; });
      }).detach();
    } catch (const std::system_error&) {
      idle_team_ = false;  // no thread is to be had
    }
  }

  void release() {
    const std::lock_guard lock(holding_);
    idle_team_ = false;
    released_.notify_all();
  }

  std::atomic<Clock::rep> next_ = 0;
  std::mutex looking_;
  double waited_ = 0;
  Clock::time_point looked_, until_;
  std::chrono::milliseconds hold_for_ = kHoldFirst;  ///< a neighbour that stays makes it longer
  std::mutex holding_;
  std::condition_variable released_;
  std::atomic<bool> idle_team_ = false;
};

}  // namespace

void adapt_waits() {
  static const bool users_choice =
      std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr;
  if (users_choice || thread_count() == 1) return;
  static auto* const waits = new Waits;  // never destroyed: its thread may outlive main()
  waits->look();
}

void run_pieces(int count, const std::function<void(int)>& body) {
#pragma omp parallel num_threads(count)
  {
    // OpenMP may grant fewer threads than asked for.
    for (int piece = omp_get_thread_num(); piece < count; piece += omp_get_num_threads()) body(piece);
  }
}

}  // namespace kaon
