#include "base/parallel.h"

#include <gtest/gtest.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/error.h"

namespace kaon {
namespace {

/// Sets the thread count for one test.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }

 private:
  int before_;
};

TEST(ParallelFor, CoversEveryIndexOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    const Threads scope(threads);
    for (const int64_t size : {1, 2, 9, 10, 11, 100, 1001}) {
      for (const int64_t grain : {1, 10, 64}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(size));
        std::atomic<int> pieces = 0;
        parallel_for(5, 5 + size, grain, [&](int64_t begin, int64_t end) {
          ++pieces;
          EXPECT_LT(begin, end);
          EXPECT_EQ((begin - 5) % grain, 0) << "a piece starts at a multiple of the grain";
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i - 5)];
        });
        for (const auto& count : seen) ASSERT_EQ(count, 1);
        EXPECT_EQ(pieces, std::min<int64_t>(threads, (size + grain - 1) / grain));
      }
    }
  }
}

TEST(ParallelFor, EmptyRangeCallsNothing) {
  const auto never = [](int64_t, int64_t) { FAIL() << "called for an empty range"; };
  parallel_for(3, 3, 1, never);
  parallel_for(4, 3, 1, never);
}

TEST(ParallelFor, AGrainBelowOneIsOne) {
  int64_t sum = 0;
  const Threads scope(1);
  parallel_for(0, 4, 0, [&](int64_t begin, int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, 4);
}

TEST(ParallelFor, UpToOneGrainRunsOnTheCaller) {
  const Threads scope(4);
  parallel_for(0, 64, 64, [caller = std::this_thread::get_id()](int64_t begin, int64_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(end - begin, 64);
  });
}

std::set<std::thread::id> threads_of(int64_t pieces) {
  std::mutex mutex;
  std::set<std::thread::id> threads;
  parallel_for(0, pieces, 1, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  });
  return threads;
}

/// Threads that two pieces run on, given time for a crowded machine to be tried again.
size_t threads_in_the_end() {
  for (int i = 0; i < 1000; ++i) {
    if (const size_t count = threads_of(2).size(); count > 1) return count;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return 1;
}

TEST(ParallelFor, UsesSeveralThreads) {
  const Threads scope(2);
  EXPECT_EQ(threads_in_the_end(), 2U);
}

TEST(ParallelFor, WorksAloneForAWhileWhereAnotherThreadIsHeldUp) {
  const Threads scope(2);
  ASSERT_EQ(threads_in_the_end(), 2U);
  parallel_for(0, 2, 1, [caller = std::this_thread::get_id()](int64_t, int64_t) {
    if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  EXPECT_EQ(threads_of(2), std::set{std::this_thread::get_id()});
  EXPECT_EQ(threads_in_the_end(), 2U);
}

TEST(ParallelFor, RunsOnThisThreadWhileToldSo) {
  const Threads scope(2);
  {
    const OnThisThread alone;
    EXPECT_EQ(threads_of(2), std::set{std::this_thread::get_id()});
  }
  EXPECT_EQ(threads_in_the_end(), 2U);
}

TEST(ParallelFor, NestedCallsRunOnTheCallingThread) {
  const Threads scope(3);
  std::atomic<int64_t> sum = 0;
  std::atomic<int> inner_calls = 0;
  parallel_for(0, 3, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      parallel_for(0, 1000, 1, [&, thread = std::this_thread::get_id()](int64_t first, int64_t last) {
        EXPECT_EQ(std::this_thread::get_id(), thread);
        ++inner_calls;
        sum += last - first;
      });
    }
  });
  EXPECT_EQ(sum, 3000);
  EXPECT_EQ(inner_calls, 3);
}

TEST(ParallelFor, RethrowsOnTheCallerAndWorksAfterwards) {
  const Threads scope(4);
  std::atomic<int> finished = 0;
  try {
    parallel_for(0, 4, 1, [&](int64_t begin, int64_t) {
      if (begin == 2) fail(ErrorCode::Numeric, "piece 2", "no good");
      ++finished;
    });
    FAIL() << "the exception was lost";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "piece 2: no good");
  }
  EXPECT_EQ(finished, 3) << "the other pieces are completed, not abandoned";

  std::atomic<int> pieces = 0;
  parallel_for(0, 4, 1, [&](int64_t, int64_t) { ++pieces; });
  EXPECT_EQ(pieces, 4) << "still parallel after an exception";
}

TEST(ParallelFor, OneOfManyExceptionsArrives) {
  const Threads scope(4);
  EXPECT_THROW(parallel_for(0, 4, 1, [](int64_t, int64_t) { fail(ErrorCode::Numeric, "", "each piece"); }), Error);
}

TEST(ParallelFor, ANestedExceptionArrives) {
  const Threads scope(2);
  EXPECT_THROW(parallel_for(0, 2, 1,
                            [](int64_t, int64_t) {
                              parallel_for(0, 8, 1, [](int64_t, int64_t) { fail(ErrorCode::Numeric, "", "inner"); });
                            }),
               Error);
}

#ifdef _OPENMP
/// Threads of this process, as the kernel counts them.
int64_t threads_alive() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// A team of idle threads beside that of the work makes OpenMP put its threads to sleep at once.
TEST(ParallelFor, WaitsAreShortWhileOthersWantTheCores) {
  const Threads two(2);
  const auto work = [] { parallel_for(0, 64, 1, [](int64_t, int64_t) {}); };
  // What other tests left behind goes, unless others want the cores already.
  for (int i = 0; i < 500 && (work(), threads_alive() > 2); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::atomic<bool> done = false;
  std::vector<std::thread> crowd;
  for (int i = 0; i < 4 * omp_get_num_procs(); ++i) {
    crowd.emplace_back([&] {
      while (!done) {
      }
    });
  }
  // It comes and goes, so it is looked for all the while: a thread that holds it and one more.
  bool found = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!found && std::chrono::steady_clock::now() < end) {
    work();
    found = threads_alive() >= 4 + std::ssize(crowd);
  }
  EXPECT_TRUE(found);
  done = true;
  for (std::thread& thread : crowd) thread.join();
}
#endif

TEST(ThreadCount, RejectsNonsense) {
  const int before = thread_count();
  EXPECT_GE(before, 1);
  for (const int count : {-1, 0, 1025}) EXPECT_THROW(set_thread_count(count), Error) << count;
  EXPECT_EQ(thread_count(), before);
}

}  // namespace
}  // namespace kaon
