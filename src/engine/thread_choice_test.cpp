#include "engine/thread_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace kaon {
namespace {

/// Work that takes so long on all threads and on one, and how often a thread then loses its core.
struct Place {
  double all, alone;
  int64_t preempted;
};

/// Seconds of `runs` runs.
double spend(ThreadChoice& choice, const Place& place, int runs) {
  double total = 0;
  for (int i = 0; i < runs; ++i) {
    const bool all = choice.all_threads();
    const double seconds = all ? place.all : place.alone;
    choice.ran(all, seconds, place.preempted);
    total += seconds;
  }
  return total;
}

constexpr Place kLargeIdle{0.013, 0.026, 0};
constexpr Place kLargeBusy{0.160, 0.026, 20};
constexpr Place kTinyIdle{60e-6, 42e-6, 0};
constexpr Place kTinyBusy{72e-3, 42e-6, 9};
constexpr Place kSmallIdle{150e-6, 257e-6, 0};
constexpr Place kSmallBusy{72e-3, 257e-6, 9};

TEST(ThreadChoice, LongRunsThatNobodyDisturbsAreNeverTriedAlone) {
  ThreadChoice choice;
  EXPECT_NEAR(spend(choice, kLargeIdle, 100), 100 * kLargeIdle.all, 1e-9);
}

TEST(ThreadChoice, FindsTheBetterWayAndKeepsToIt) {
  for (const Place& place : {kLargeBusy, kTinyIdle, kSmallIdle, kLargeIdle}) {
    ThreadChoice choice;
    spend(choice, place, 10);
    EXPECT_LE(spend(choice, place, 1000), 1.05 * 1000 * std::min(place.all, place.alone)) << place.all;
  }
  for (const Place& place : {kTinyBusy, kSmallBusy}) {
    ThreadChoice choice;
    spend(choice, place, 10);
    EXPECT_LE(spend(choice, place, 200'000), 1.05 * 200'000 * place.alone) << place.alone;
  }
}

TEST(ThreadChoice, FollowsANeighbourThatComesAndGoes) {
  const auto follow = [](const Place& before, const Place& after, int patience) {
    ThreadChoice choice;
    spend(choice, before, 50);
    spend(choice, after, patience);
    EXPECT_LE(spend(choice, after, 1000), 1.05 * 1000 * std::min(after.all, after.alone)) << before.all;
  };
  follow(kLargeIdle, kLargeBusy, 5);
  follow(kLargeBusy, kLargeIdle, 300);
  follow(kSmallIdle, kSmallBusy, 5);
  follow(kSmallBusy, kSmallIdle, 12'000);  // three seconds
}

TEST(ThreadChoice, OneHiccupChangesNothing) {
  ThreadChoice choice;
  spend(choice, kSmallIdle, 10);
  choice.ran(true, 1, 3);
  EXPECT_TRUE(choice.all_threads());
}

}  // namespace
}  // namespace kaon
