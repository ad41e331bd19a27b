#include "base/recycled_memory.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

constexpr size_t kLarge = size_t{8} << 20;

/// Where memory of this size lies that is freed at once.
const std::byte* place_of(size_t size) { return recycled_bytes(size).get(); }

TEST(RecycledMemory, GoesToTheNextOfItsSize) {
  const Recycling recycling;
  const auto first = recycled_bytes(kLarge);
  const std::byte* second = place_of(kLarge);
  EXPECT_NE(first.get(), second);  // the first is in use
  const auto other_size = recycled_bytes(kLarge / 2);
  EXPECT_EQ(place_of(kLarge), second);
  EXPECT_EQ(place_of(kLarge), second);
}

TEST(RecycledMemory, OutlivesItsRecycling) {
  std::shared_ptr<std::byte> kept;
  {
    const Recycling recycling;
    kept = recycled_bytes(kLarge);
  }
  kept.get()[kLarge - 1] = std::byte{7};
  EXPECT_EQ(kept.get()[kLarge - 1], std::byte{7});
}

TEST(RecycledMemory, NestedOnesKeepUntilTheLastEnds) {
  const Recycling outer;
  const std::byte* place = place_of(kLarge);
  { const Recycling inner; }
  EXPECT_EQ(place_of(kLarge), place);
}

}  // namespace
}  // namespace kaon
