#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/layer.h"
#include "graph/node_id.h"
#include "numerics/moments.h"
#include "quant/config.h"

namespace kaon {

/// A slot of a layer, or of a node that is no layer (Add, Concat, pooling), which a quantizer serves.
struct Served {
  std::string layer;
  Slot slot = Slot::Input;
};

/// A spec at work on one value of the graph.
struct Quantizer {
  int64_t id = 0;
  std::string tensor;       ///< the value it reads, by its name in the graph
  Slot kind = Slot::Input;  ///< Weight and Bias: the value is an initializer; Input and Output: an activation
  bool enabled = true;
  TensorSpec spec;
  ObserverConfig observer;
  bool dynamic = false;
  /// Activations: who reads the quantized value; empty: everyone does. Weights and biases: always named.
  std::vector<Reader> readers;
  std::vector<Reader> inner_readers;  ///< weights: readers inside subgraphs
  /// Further values that hold the same numbers in other places (reshaped, pooled by maximum …): quantized already, and
  /// to be stored with the same parameters.
  std::vector<std::string> moved;
  std::vector<Served> serves;  ///< at least one
  /// What it learned; empty while uncalibrated, for dynamic ones and for formats with their own scales.
  QuantParams params;
  Range observed;  ///< smallest and largest value seen

  /// "conv1.input", "conv1.weight": the first slot it serves.
  std::string label() const;
  bool is_activation() const { return kind == Slot::Input || kind == Slot::Output; }
  bool calibrated() const { return dynamic || !learns_scales(format(spec.format)) || !params.scale.empty(); }
  /// Quantizes and dequantizes; `out` may be `in`.
  void apply(FloatView in, std::span<float> out, std::span<const int64_t> shape) const;
  /// A float tensor likewise, as float32.
  Tensor applied(const Tensor& exact) const;
};

struct Skipped {
  std::string layer;
  std::string reason;
  int64_t bytes = 0;  ///< that stay float; 0 where that is not the point
};

/// `{layer, reason}`, and `bytes` where there are any.
nlohmann::ordered_json to_json(const Skipped& skipped);

struct CalibrationReport {
  int64_t samples = 0;
  double seconds = 0;
};

/// What an algorithm did.
struct AlgorithmReport {
  std::string name;
  int64_t changed = 0;  ///< layers, or pairs of layers, whose constants or parameters are others now
  double seconds = 0;
  std::vector<std::string> notes;
};

/// Channel c of a value, along `axis` (which counts from the end below 0), is factors[c] times what it was, less
/// shifts[c] where there are any. `pads` zeros, before and behind each axis as a Pad has them, were put around it
/// first.
struct ChannelFactors {
  int64_t axis = 1;
  std::vector<float> factors;
  std::vector<float> shifts;
  std::vector<int64_t> pads;
};

/// A float model with quantizers on its edges.
struct QuantizedModel {
  Model original;  ///< float, after the standard passes: what everything is compared with
  Model model;     ///< the same function after equivalent transforms; quantizers sit here
  std::vector<Layer> layers;
  std::vector<Quantizer> quantizers;
  std::vector<Skipped> skipped;
  Config config;
  CalibrationReport calibration;
  /// Values of `model` whose channels have other units than in `original`, by name.
  std::map<std::string, ChannelFactors> rescaled;
  /// Constants of `model` as they go into their quantizers where algorithms chose something else than the nearest
  /// code: weights on their grid, corrected biases.
  TensorMap rounded;
  std::vector<AlgorithmReport> algorithms;  ///< in the order they ran

  /// Names of the layers that have at least one quantizer.
  std::vector<std::string> quantized_layers() const;
  /// The quantizer that serves this slot, or nullptr.
  const Quantizer* find(const std::string& layer, Slot slot) const;
};

/// In every subgraph of `graph` that holds some of `readers`, these read the value `to(before)` instead, which is
/// called once for each such subgraph; nodes that it puts into `before` stand before the first reader.
void redirect_inside(Graph& graph, const std::vector<Reader>& readers,
                     const std::function<std::string(std::vector<Node>& before)>& to);

/// What goes into the quantizer of a constant: as rounded, else as in `model`.
const Tensor& constant_of(const QuantizedModel& quantized, const std::string& name);

/// `model` with the rounded constants.
Model rounded_model(const QuantizedModel& quantized);

}  // namespace kaon
