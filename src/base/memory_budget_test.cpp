#include "base/memory_budget.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace kaon {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

std::string refusal(int64_t bytes) {
  try {
    require_memory(bytes, "here");
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(MemoryBudget, TheMachineBoundsWhatNoLimitDoes) {
  const int64_t room = memory_room();
  EXPECT_GT(room, 0);
  EXPECT_LT(room, int64_t{1} << 46);
  EXPECT_EQ(refusal(64 << 20), "");
  const std::string message = refusal(int64_t{1} << 60);
  EXPECT_NE(message.find("here: "), std::string::npos) << message;
  EXPECT_NE(message.find("1152921504606846976 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("are free on this machine"), std::string::npos) << message;
}

TEST(MemoryBudget, ALimitCountsWhatIsHeldAlready) {
  set_memory_limit(kGiB);
  EXPECT_LT(memory_room(), kGiB);
  EXPECT_EQ(refusal(kGiB / 4), "");
  EXPECT_NE(refusal(kGiB), "");
  const std::vector<char> held(kGiB / 2, 1);
  EXPECT_LT(memory_room(), kGiB / 2);
  EXPECT_NE(refusal(kGiB / 2), "");
  set_memory_limit(0);
  EXPECT_EQ(refusal(kGiB / 2), "");
}

TEST(MemoryBudget, ManySmallRequestsAreLookedAtTogether) {
  set_memory_limit(1);
  bool refused = false;
  for (int i = 0; i < 100 && !refused; ++i) refused = !refusal(1 << 20).empty();
  EXPECT_TRUE(refused);
  set_memory_limit(0);
}

// Linked into every program of ours, this one too.
TEST(MemoryBudget, NewThrowsInsteadOfEndingTheProgram) {
#ifndef __SANITIZE_ADDRESS__
  EXPECT_THROW(std::vector<char>(size_t{1} << 60), Error);
  set_memory_limit(kGiB / 2);
  EXPECT_THROW(std::vector<char>(static_cast<size_t>(kGiB)), Error);
  set_memory_limit(0);
#endif
}

}  // namespace
}  // namespace kaon
