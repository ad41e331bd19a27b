#include "report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kaon {
namespace {

std::string labels(const std::vector<Tick>& ticks) {
  std::string out;
  for (const Tick& tick : ticks) out += (out.empty() ? "" : " ") + tick.label;
  return out;
}

TEST(Axis, ShortNumbers) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(-1.23456), "−1.23");
  EXPECT_EQ(short_number(1234.5), "1234");
  EXPECT_EQ(short_number(99999), "99999");
  EXPECT_EQ(short_number(99999.7), "100 k");
  EXPECT_EQ(short_number(999999), "1 M");
  EXPECT_EQ(short_number(35.4e6), "35.4 M");
  EXPECT_EQ(short_number(0.001), "0.001");
  EXPECT_EQ(short_number(3.14159e-7), "3.14·10⁻⁷");
  EXPECT_EQ(short_number(9.999e-5, 2), "10⁻⁴");
  EXPECT_EQ(short_number(-1e20), "−10²⁰");
  EXPECT_EQ(short_number(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(short_number(-std::numeric_limits<double>::infinity()), "−∞");
}

TEST(Axis, NiceTicks) {
  EXPECT_EQ(labels(nice_ticks(0, 1, 5)), "0 0.2 0.4 0.6 0.8 1.0");
  EXPECT_EQ(labels(nice_ticks(-0.31, 0.32, 6)), "−0.2 0 0.2");
  EXPECT_EQ(labels(nice_ticks(0, 10, 4)), "0 2.5 5.0 7.5 10.0");
  EXPECT_EQ(labels(nice_ticks(0, 5700, 6)), "0 1000 2000 3000 4000 5000");
  EXPECT_EQ(labels(nice_ticks(0, 2.1e6, 4)), "0 1 M 2 M");
  EXPECT_EQ(labels(nice_ticks(0, 3e-6, 3)), "0 10⁻⁶ 2·10⁻⁶ 3·10⁻⁶");
  EXPECT_TRUE(nice_ticks(1, 1, 5).empty());
  EXPECT_TRUE(nice_ticks(0, std::numeric_limits<double>::infinity(), 5).empty());
}

TEST(Axis, LogTicks) {
  EXPECT_EQ(labels(log_ticks(1, 1000, 6)), "1 10 100 1000");
  EXPECT_EQ(labels(log_ticks(0.02, 0.7, 6)), "0.02 0.05 0.1 0.2 0.5");
  EXPECT_EQ(labels(log_ticks(1e-6, 1, 4)), "10⁻⁶  10⁻⁴  0.01  1");
  EXPECT_TRUE(log_ticks(0, 1, 4).empty());
  EXPECT_TRUE(log_ticks(-1, 1, 4).empty());
}

TEST(Axis, NoRangeBreaksIt) {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Axis::Kind kind : {Axis::Kind::Linear, Axis::Kind::Log}) {
    for (const double low : {0.0, -1.0, 1.0, 1e-320, 1e308, -1e308, -inf, inf, nan}) {
      for (const double high : {0.0, -1.0, 1.0, 1.0000000001, 1e308, inf, nan}) {
        const Axis axis(kind, low, high, 10, 110);
        EXPECT_LT(axis.low(), axis.high()) << low << " " << high;
        EXPECT_NEAR(axis.at(axis.low()), 10, 1e-9);
        EXPECT_NEAR(axis.at(axis.high()), 110, 1e-9);
        EXPECT_EQ(axis.at(-inf), axis.at(axis.low()));
        const auto ticks = axis.ticks(5);
        EXPECT_LE(ticks.size(), 700U);
        for (const Tick& tick : ticks) EXPECT_TRUE(std::isfinite(axis.at(tick.value)));
      }
    }
  }
}

}  // namespace
}  // namespace kaon
