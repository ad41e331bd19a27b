// Draws the picture of docs/algorithms.md: draw_channels MODEL CALIBRATION FILE shows the largest weight of every
// channel of one layer before and after cross-layer equalization.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "io/onnx/onnx.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "report/charts.h"

namespace {

/// log2 of the largest magnitude of each output channel, relative to the largest of all.
std::vector<double> octaves(const kaon::Tensor& weight) {
  const std::vector<float> values = weight.to_float();
  const size_t each = values.size() / static_cast<size_t>(weight.shape()[0]);
  std::vector<double> largest(static_cast<size_t>(weight.shape()[0]));
  for (size_t i = 0; i < values.size(); ++i) {
    largest[i / each] = std::max(largest[i / each], std::fabs(static_cast<double>(values[i])));
  }
  const double all = std::ranges::max(largest);
  for (double& one : largest) one = std::log2(one / all);
  return largest;
}

/// How many octaves lie between the channels of a convolution; 0 where one of them is empty.
double spread(const kaon::Model& model, const kaon::Layer& layer) {
  if (layer.op != "Conv") return 0;
  const double least = std::ranges::min(octaves(model.graph.find_initializer(layer.weight)->tensor));
  return std::isfinite(least) ? -least : 0;
}

/// One step for each channel.
kaon::Curve steps(const std::string& name, const std::vector<double>& values, const std::vector<size_t>& order) {
  kaon::Curve curve{.name = name, .stairs = true};
  for (size_t c = 0; c < values.size(); ++c) {
    curve.x.push_back(static_cast<double>(c));
    curve.y.push_back(values[order[c]]);
  }
  return curve;
}

void draw(const std::string& path, const std::string& calibration, const std::string& picture) {
  const kaon::Model model = kaon::read_onnx(path);
  const auto data = kaon::open_dataset(calibration, model.graph.required_inputs());
  kaon::Config config = kaon::scheme_config("w8");
  config.algorithms = {{"cle"}};
  const kaon::QuantizedModel quantized = kaon::quantize(model, config, data.get());
  const auto worst = std::ranges::max_element(
      quantized.layers, {}, [&](const kaon::Layer& layer) { return spread(quantized.original, layer); });
  const auto of = [&](const kaon::Model& from) { return octaves(from.graph.find_initializer(worst->weight)->tensor); };
  const std::vector<double> before = of(quantized.original), after = of(quantized.model);
  std::vector<size_t> order(before.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t channel) { return before[channel]; });
  kaon::draw_curves(
      {.title = "Channels of a weight",
       .subtitle = fmt::format("{}: what is 8 octaves below the largest has no code of int8 left", worst->name),
       .x_label = "channel, the largest first",
       .y_label = "largest magnitude, octaves below that of all",
       .curves = {steps("as it was", before, order), steps("after cle", after, order)}},
      picture);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: draw_channels MODEL CALIBRATION FILE\n";
    return 2;
  }
  try {
    draw(argv[1], argv[2], argv[3]);
  } catch (const kaon::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
