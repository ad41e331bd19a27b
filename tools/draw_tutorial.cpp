// Draws the pictures of docs/quickstart.md with Kaon itself: draw_tutorial FOLDER writes staircase.svg, symmetry.svg
// and granularity.svg there.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "numerics/error_metrics.h"
#include "numerics/tensor_spec.h"
#include "report/charts.h"

namespace {

using kaon::Curve;
using kaon::Granularity;
using kaon::TensorSpec;

/// x from low to high, and what `spec` makes of it when its range is that of `data`.
Curve stairs(const std::string& name, const TensorSpec& spec, const std::vector<float>& data, float low, float high) {
  const int64_t shape[] = {std::ssize(data)};
  const kaon::QuantParams params = kaon::choose_params(data, shape, spec);
  constexpr int kPoints = 1600;
  std::vector<float> x;
  for (int i = 0; i < kPoints; ++i) x.push_back(low + (high - low) * static_cast<float>(i) / (kPoints - 1));
  std::vector<float> y(x.size());
  const int64_t points[] = {std::ssize(x)};
  kaon::fake_quantize(x, y, points, spec, params);
  Curve curve{.name = name, .x = {x.begin(), x.end()}, .y = {y.begin(), y.end()}, .stairs = true};
  return curve;
}

Curve identity(float low, float high) { return {.name = "exact", .x = {low, high}, .y = {low, high}}; }

void draw_staircase(const std::string& folder) {
  const TensorSpec int4{.format = "int4"};
  kaon::draw_curves(
      {.title = "Rounding to a grid",
       .subtitle = "int4, symmetric, for values between -1 and 1: 16 codes, 1/7 apart, and clipping beyond",
       .x_label = "value",
       .y_label = "value after quantizing and dequantizing",
       .curves = {identity(-1.4F, 1.4F), stairs("int4", int4, {-1, 1}, -1.4F, 1.4F)}},
      folder + "/staircase.svg");
}

void draw_symmetry(const std::string& folder) {
  const std::vector<float> after_relu{0, 6};
  const TensorSpec symmetric{.format = "int4"};
  const TensorSpec asymmetric{.format = "uint4", .symmetric = false};
  kaon::draw_curves(
      {.title = "Symmetric or not",
       .subtitle = "values between 0 and 6: int4 symmetric wastes its negative half, uint4 asymmetric does not",
       .x_label = "value",
       .y_label = "value after quantizing and dequantizing",
       .curves = {stairs("int4 symmetric", symmetric, after_relu, -0.5F, 6.5F),
                  stairs("uint4 asymmetric", asymmetric, after_relu, -0.5F, 6.5F)}},
      folder + "/symmetry.svg");
}

void draw_granularity(const std::string& folder) {
  constexpr int64_t kChannels = 12, kPerChannel = 256;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> weight;
  for (int64_t c = 0; c < kChannels; ++c) {
    const float spread = std::pow(2.0F, static_cast<float>(c) * -0.5F);
    for (int64_t i = 0; i < kPerChannel; ++i) weight.push_back(normal(random) * spread);
  }
  const int64_t shape[] = {kChannels, kPerChannel};
  const std::pair<const char*, TensorSpec> specs[] = {
      {"one scale a tensor", {.format = "int4"}},
      {"one scale a channel", {.format = "int4", .granularity = Granularity::PerChannel, .axis = 0}},
      {"one scale for 32 neighbours", {.format = "int4", .granularity = Granularity::PerGroup, .axis = 1}}};
  std::vector<Curve> curves;
  for (const auto& [name, spec] : specs) {
    std::vector<float> faked(weight.size());
    kaon::fake_quantize(weight, faked, shape, spec);
    Curve curve{.name = name};
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto first = static_cast<size_t>(c * kPerChannel);
      kaon::ErrorMetrics metrics;
      metrics.update(std::span(faked).subspan(first, kPerChannel), std::span(weight).subspan(first, kPerChannel));
      curve.x.push_back(static_cast<double>(c));
      curve.y.push_back(metrics.sqnr_db());
    }
    curves.push_back(std::move(curve));
  }
  kaon::draw_curves({.title = "Granularity",
                     .subtitle = "a weight of 12 channels, each with 0.7 of the spread of the one before, in int4",
                     .x_label = "channel",
                     .y_label = "signal to noise, dB",
                     .curves = curves},
                    folder + "/granularity.svg");
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) {
    std::cerr << "usage: draw_tutorial FOLDER\n";
    return 2;
  }
  draw_staircase(argv[1]);
  draw_symmetry(argv[1]);
  draw_granularity(argv[1]);
} catch (const kaon::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
