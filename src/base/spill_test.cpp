#include "base/spill.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.h"

namespace kaon {
namespace {

TEST(SpillBuffer, HoldsWhatIsWrittenInMemoryAndInAFile) {
  for (const int64_t in_memory : {1 << 20, 100}) {
    SpillBuffer buffer(100'000, in_memory);
    EXPECT_EQ(buffer.in_file(), in_memory < 100'000);
    const std::span<std::byte> bytes = buffer.bytes();
    ASSERT_EQ(bytes.size(), 100'000U);
    EXPECT_TRUE(std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; }));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 251);
    SpillBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.bytes()[99'999], static_cast<std::byte>(99'999 % 251));
  }
  EXPECT_TRUE(SpillBuffer(0, 0).bytes().empty());
}

TEST(SpillBuffer, ADiskWithoutRoomIsAnError) {
  try {
    SpillBuffer(int64_t{1} << 60, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
  }
}

}  // namespace
}  // namespace kaon
