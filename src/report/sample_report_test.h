#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "debug/debug_report.h"

namespace kaon {

/// One quantizer of int8 over normal values, `spread` wide, in which `outliers` of the 64 channels are 30 times wider.
inline QuantizerDebug sample_quantizer(int64_t id, Slot slot, double spread, int64_t outliers, bool histograms) {
  constexpr int64_t kChannels = 64;
  constexpr int64_t kRows = 96;
  std::mt19937 random(static_cast<uint32_t>(id));
  std::normal_distribution<float> normal(0, static_cast<float>(spread));
  std::vector<float> x(kChannels * kRows);
  float absmax = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random) * (static_cast<int64_t>(i % kChannels) < outliers ? 30 : 1);
    if (slot == Slot::Output) x[i] = std::max(x[i], 0.0F);
    absmax = std::max(absmax, std::abs(x[i]));
  }
  const float scale = absmax / 127;
  std::vector<float> q(x);
  for (float& value : q) value = scale * std::nearbyint(value / scale);

  QuantizerDebug out;
  out.id = id;
  out.tensor = "value_" + std::to_string(id);
  out.kind = slot;
  out.format = "int8";
  out.description = "int8, per_tensor, symmetric, min_max";
  out.scale = {scale};
  out.zero_point = {0};
  out.representable = Range{-128 * scale, 127 * scale};
  out.step = scale;
  out.shape = {kRows, kChannels};
  out.channel_axis = 1;
  out.input.update(FloatView(x));
  out.io.update(FloatView(q), FloatView(x));
  out.ref_output = out.local = out.io;
  out.clips.nonzero = static_cast<int64_t>(x.size());
  for (size_t i = 0; i < x.size(); ++i) out.clips.zeroed += x[i] != 0 && q[i] == 0 ? 1 : 0;
  out.clips.round_squared_error = out.io.sum_squared_error;
  for (int64_t c = 0; c < kChannels; ++c) {
    ChannelStats channel;
    for (int64_t r = 0; r < kRows; ++r) {
      const float value = x[static_cast<size_t>(r * kChannels + c)];
      channel.min = r == 0 ? value : std::min(channel.min, value);
      channel.max = r == 0 ? value : std::max(channel.max, value);
      const float error = q[static_cast<size_t>(r * kChannels + c)] - value;
      channel.abs_mean += std::abs(value) / kRows;
      channel.energy += static_cast<double>(value) * value;
      channel.squared_error += static_cast<double>(error) * error;
    }
    out.channels.push_back(channel);
  }
  if (histograms) {
    out.input_histogram.update(FloatView(x));
    out.output_histogram.update(FloatView(q));
    if (slot == Slot::Input || slot == Slot::Output) out.reference_histogram.update(FloatView(x));
  }
  if (outliers > 0) out.reading = std::to_string(outliers) + " of 64 channels hold most of the range.";
  return out;
}

/// `layers` layers with an input, a weight and an output each; every tenth has an outlier channel. Ranked by their
/// effect on the outputs.
inline DebugReport sample_report(int64_t layers, bool histograms = true) {
  DebugReport report;
  report.model = "sample.onnx";
  report.scheme = "w8a8";
  report.samples = 64;
  report.batches = 8;
  report.layers = layers;
  report.parameters = layers * 6144;
  report.observed = layers * 2 * 6144;
  static constexpr const char* kNames[] = {"self_attn.q_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2"};
  for (int64_t i = 0; i < layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i / 4) + "." + kNames[i % 4];
    for (const Slot slot : {Slot::Input, Slot::Weight, Slot::Output}) {
      const auto id = static_cast<int64_t>(report.quantizers.size());
      report.rows.push_back({layer, slot, "MatMul", report.quantizers.size(), id});
      report.quantizers.push_back(sample_quantizer(id, slot, 0.05 + 0.01 * static_cast<double>(i % 17),
                                                   slot == Slot::Input && i % 10 == 3 ? 1 : 0,
                                                   histograms || slot == Slot::Weight));
    }
  }
  report.ranked = 32;
  for (QuantizerDebug& quantizer : report.quantizers) {
    quantizer.output_gain = 0.01 * static_cast<double>((7 * quantizer.id) % 19 - 1);
    quantizer.output_alone = 1e-4 * static_cast<double>((7 * quantizer.id) % 19);
  }
  std::stable_sort(report.rows.begin(), report.rows.end(), [&](const DebugRow& a, const DebugRow& b) {
    return report.of(a).output_gain > report.of(b).output_gain;
  });
  for (const char* name : {"logits", "boxes"}) {
    report.outputs.push_back({.name = name, .error = report.quantizers[report.outputs.size()].io});
  }
  report.outputs.front().agreement = 0.99;
  report.outputs.front().top1 = 0.91;
  report.outputs.front().float_top1 = 0.92;
  return report;
}

}  // namespace kaon
