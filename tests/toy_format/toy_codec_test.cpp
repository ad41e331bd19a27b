// Linked with the codec suites of src/numerics, which loop over the registry: the toy runs through all of them.
#include <gtest/gtest.h>

#include "numerics/reference.h"

namespace kaon {
namespace {

TEST(ToyCodec, OneFileIsEnough) {
  const Format* toy = formats().find("fp5_e2m2");
  ASSERT_NE(toy, nullptr);
  EXPECT_NE(formats().find("mxfp4"), nullptr) << "beside the others";
  EXPECT_EQ(toy->max(), 7);
  EXPECT_EQ(reference::encode(*toy, 1.25f), 0b00101u);
  EXPECT_EQ(reference::encode(*toy, -9.0f), 0b11111u);
  EXPECT_EQ(packed_bytes(*toy, 3), 2);
}

}  // namespace
}  // namespace kaon
