#include "base/memory_usage.h"

#include <gtest/gtest.h>

#include <vector>

namespace kaon {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr double kMost = 400;  // its shadow memory counts too
#else
constexpr double kMost = 100;
#endif

TEST(PeakMemory, GrowsWithWhatIsTouchedAndStays) {
  const double before = peak_memory_mb();
  EXPECT_GT(before, 1);
  {
    const std::vector<char> bytes(64 << 20, 'x');
    const volatile char keep = bytes[bytes.size() / 2];
    static_cast<void>(keep);
  }
  const double after = peak_memory_mb();
  EXPECT_GT(after, before + 50);
  EXPECT_LT(after, before + kMost);
  EXPECT_GE(peak_memory_mb(), after);
}

}  // namespace
}  // namespace kaon
