#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "numerics/error_metrics.h"
#include "numerics/histogram.h"
#include "numerics/moments.h"
#include "quant/quantizer.h"

namespace kaon {

// What quantization did to every value that has a quantizer. Four values are told apart:
//   r  the float model's value                       ("reference")
//   x  what the quantizer reads in the quantized run ("input")
//   q  what the quantizer makes of x                 ("output")
//   l  what the quantizer makes of r
// A weight or bias is the same in both runs: r = x, l = q.

/// Where the first NaN or Inf was seen.
struct NonFiniteAt {
  std::string layer;
  Slot slot = Slot::Output;
  std::string tensor;
  bool float_run = false;  ///< already in the float model
  int64_t batch = -1;      ///< -1 for a constant
  int64_t index = 0;       ///< of the element in the batch's value, row-major
  Shape element;           ///< the same as coordinates
  float value = 0;
};

/// One channel of x. Of a weight: one output channel. A bias has but one.
struct ChannelStats {
  float min = 0;
  float max = 0;
  double abs_mean = 0;
  double energy = 0;         ///< Σ x²
  double squared_error = 0;  ///< Σ (q - x)²

  float absmax() const { return std::max(-min, max); }
};

/// The share of x that lies beyond what the format can represent. An element is clipped where it lies beyond the
/// lowest or highest value of its tile by more than half of the last step: one that rounds to the last code is not.
struct ClipCounts {
  int64_t clipped = 0;
  int64_t nonzero = 0;             ///< elements of x that are not 0 …
  int64_t zeroed = 0;              ///< … and those of them that became 0
  double clip_squared_error = 0;   ///< Σ (q - x)² over the clipped elements
  double round_squared_error = 0;  ///< and over the others
};

/// One quantizer and everything learned about it.
struct QuantizerDebug {
  int64_t id = 0;
  std::string tensor;
  Slot kind = Slot::Input;
  std::string format;       ///< "int8"
  std::string description;  ///< "FakeQuantize int8, per_channel on axis 0, symmetric, …"
  bool dynamic = false;
  std::vector<float> scale;  ///< one for each tile; empty where they follow from the data
  std::vector<int32_t> zero_point;
  /// What the format can represent, where one range holds for the whole value.
  std::optional<Range> representable;
  double step = 0;  ///< distance of the codes, where it is one number; else 0
  Shape shape;      ///< of a weight or bias; of an activation: that of the first batch
  int64_t channel_axis = 0;

  Moments input;            ///< of x
  ErrorMetrics io;          ///< q against x
  ErrorMetrics ref_input;   ///< x against r: the error that arrives
  ErrorMetrics ref_output;  ///< q against r: the error that goes on
  ErrorMetrics local;       ///< l against r
  ClipCounts clips;
  std::vector<ChannelStats> channels;

  // Empty (count() == 0) for activations without act_hist; the reference ones always for weights and biases.
  Histogram input_histogram{kBins};
  Histogram output_histogram{kBins};
  Histogram reference_histogram{kBins};
  /// r seen as [outer, rows, channels]: means of |r| over the rows (one number a channel), over the channels (one a
  /// row). Channels lie on axis 1 of what convolutions read or make and of other values from rank 4 on, on the last
  /// axis of what a MatMul reads or makes and of all else. Rank 2 and 4 and convolutions have outer = 1 and rows =
  /// N·H·W, and their means over the rows go over the whole data.
  Histogram reference_absmean_rows{kBins};
  Histogram reference_absmean_channels{kBins};

  /// What it does to the model's outputs, as shares of their energy; nothing without data.
  std::optional<double> output_gain;   ///< share of the outputs' error that goes when this quantizer alone is off
  std::optional<double> output_alone;  ///< error of the outputs when it alone is on: Σ(y - y_float)² / Σ y_float²
  /// Of an activation's squared error (q - r)²: made by this quantizer, by the weight of the layer that makes the
  /// value, and brought in from before. They add up to 1 where the error is not 0.
  double own_share() const;
  double weight_share() const { return (1 - own_share()) * weight_part; }
  double inherited_share() const { return (1 - own_share()) * (1 - weight_part); }
  double weight_part = 0;  ///< of what arrives at the quantizer, the part that the layer's own weight makes

  std::string reading;  ///< plain words

  static constexpr int64_t kBins = 512;

  double mean_relative_error() const { return io.mean_relative_error(); }  ///< mean of |q - x| / (|x| + 1e-12)
  double clipped() const;                                                  ///< share of all elements
  double zeroed() const;                                                   ///< share of the elements that are not 0
  double clip_error() const;                                               ///< clip_error + round_error = mse
  double round_error() const;
  double kurtosis() const { return input.kurtosis(); }
  double channel_imbalance() const;  ///< largest |x| of any channel over the median channel's, dead channels aside
  /// Channels whose largest |x| is more than kOutlierFactor times the median channel's.
  std::vector<int64_t> outlier_channels() const;
  double outlier_range() const;                          ///< share of the largest |x| that no other channel needs
  double bias_shift() const { return io.mean_error(); }  ///< mean of q - x
  double local_error() const;                            ///< ‖l - r‖ / ‖r‖
  double cumulative_error() const;                       ///< ‖q - r‖ / ‖r‖
  /// What rows are ranked by: the root of the mean over the channels of Σ (q - x)² / Σ x², each channel for itself. One
  /// loud channel hides in local_error that the others are lost, not here. Channels with less than kDeadEnergy of the
  /// median channel's Σ x² have no say.
  double channel_error() const;
  int64_t non_finite() const;  ///< elements that are NaN or Inf in either run

  static constexpr double kOutlierFactor = 3;
  static constexpr double kDeadEnergy = 1e-4;
};

/// A row of the summary: one layer slot and the quantizer that serves it.
struct DebugRow {
  std::string layer;
  Slot slot = Slot::Input;
  std::string op;        ///< the layer's operator, "" for a node that is no layer
  size_t quantizer = 0;  ///< index into DebugReport::quantizers
  int64_t order = 0;     ///< place of the row in the model's order
};

/// An output of the model: the quantized run against the float run, on all samples.
struct OutputDebug {
  std::string name;
  ErrorMetrics error;               ///< count 0 where it holds no real numbers
  std::optional<double> agreement;  ///< share of the rows whose largest element is the same; nothing without classes
  std::optional<double> top1;       ///< of the quantized model; nothing without labels, or where they do not fit
  std::optional<double> float_top1;
};

struct DebugReport {
  std::string model;   ///< filled in by the caller
  std::string scheme;  ///< filled in by the caller
  int64_t samples = 0;
  int64_t batches = 0;
  int64_t layers = 0;      ///< of the model, quantized or not
  int64_t parameters = 0;  ///< elements of the layers' weights and biases
  int64_t observed = 0;    ///< elements of activations that quantizers saw, over all batches
  int64_t ranked = 0;      ///< samples that output_gain was measured on; 0: it was not
  double output_error = 0;  ///< of the quantized model on them: Σ(y - y_float)² / Σ y_float², summed over the outputs
  std::vector<OutputDebug> outputs;  ///< nothing without data
  std::vector<QuantizerDebug> quantizers;
  /// Worst first: NaN and Inf, then by output_gain where it was measured, else by channel_error.
  std::vector<DebugRow> rows;
  std::vector<Skipped> skipped;
  std::vector<AlgorithmReport> algorithms;
  std::optional<NonFiniteAt> nan;

  const QuantizerDebug& of(const DebugRow& row) const { return quantizers[row.quantizer]; }
  /// The output with the lowest SQNR; nullptr where none was compared.
  const OutputDebug* worst_output() const;
  /// The rows in the order of the model.
  std::vector<const DebugRow*> in_order() const;
};

}  // namespace kaon
