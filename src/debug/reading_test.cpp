#include "debug/reading.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

/// `loud` of 64 channels reach 4, one of the others 2.36 and the rest 1.
QuantizerDebug with_channels(size_t loud) {
  QuantizerDebug quantizer;
  quantizer.format = "uint8";
  quantizer.scale = {0.04F};
  quantizer.channels.assign(64, {-1, 1, 0.5, 1, 1e-6});
  quantizer.channels[63] = {0, 2.36F, 0.5, 1, 1e-6};
  for (size_t i = 0; i < loud; ++i) quantizer.channels[i] = {-4, 4, 1, 4, 1e-6};
  const std::vector<float> x = {-4, 4, 1, 2, -1}, q = {-4, 4, 1.001F, 2, -1};
  quantizer.input.update(x);
  for (ErrorMetrics* metrics : {&quantizer.io, &quantizer.local, &quantizer.ref_output}) metrics->update(q, x);
  return quantizer;
}

TEST(Reading, LoudChannelsAreCountedAndNamed) {
  EXPECT_EQ(read_quantizer(with_channels(3)), "3 of 64 input channels (0, 1, 2) hold 41 % of the range");
  QuantizerDebug many = with_channels(6);
  many.channels[4] = {-5, 4, 1, 4, 1e-6};
  EXPECT_EQ(read_quantizer(many), "6 of 64 input channels (4, 0, 1, 2 and 2 more) hold 41 % of the range");
  QuantizerDebug weight = with_channels(1);
  weight.kind = Slot::Weight;
  EXPECT_EQ(read_quantizer(weight), "1 of 64 output channels of the weight (0) holds 41 % of the range");
}

TEST(Reading, ChannelsWithTheirOwnScalesDoNotCompete) {
  QuantizerDebug quantizer = with_channels(3);
  quantizer.scale.assign(64, 0.04F);
  EXPECT_EQ(read_quantizer(quantizer), "fine: 75.8 dB");
  quantizer.scale.clear();
  quantizer.dynamic = true;
  quantizer.format = "mxfp8_e4m3";
  EXPECT_EQ(read_quantizer(quantizer), "fine: 75.8 dB");
}

TEST(Reading, ClippingSaysWhereAndHowMuch) {
  QuantizerDebug quantizer = with_channels(0);
  quantizer.representable = Range{-2, 3};
  quantizer.clips = {2, 5, 0, quantizer.io.sum_squared_error, 0};
  EXPECT_EQ(read_quantizer(quantizer),
            "40 % of the values are clipped at [-2, 3], values reach [-4, 4]: 100 % of the squared error");
}

TEST(Reading, NothingSeenAndNothingChanged) {
  QuantizerDebug quantizer;
  quantizer.format = "uint8";
  EXPECT_EQ(read_quantizer(quantizer), "saw no data");
  const std::vector<float> x = {1, 2};
  quantizer.io.update(x, x);
  EXPECT_EQ(read_quantizer(quantizer), "exact");
}

}  // namespace
}  // namespace kaon
