#include "quant/so_far.h"

#include <algorithm>

#include "quant/simulate.h"

namespace kaon {

Model simulate_so_far(const QuantizedModel& quantized) {
  QuantizedModel trial = quantized;
  for (Quantizer& quantizer : trial.quantizers) quantizer.enabled &= quantizer.kind != Slot::Bias;
  return simulate(trial);
}

std::string read_so_far(const QuantizedModel& quantized, const Layer& layer) {
  const Quantizer* quantizer = quantized.find(layer.name, Slot::Input);
  const bool own = quantizer != nullptr && quantizer->enabled && quantizer->tensor == layer.input;
  return own ? simulated_value(quantized, *quantizer) : layer.input;
}

std::vector<int64_t> portions(int64_t count) {
  constexpr int64_t kMost = 16;
  const int64_t parts = std::clamp<int64_t>(count, 1, kMost);
  std::vector<int64_t> begins;
  for (int64_t part = 0; part <= parts; ++part) begins.push_back(part * count / parts);
  return begins;
}

}  // namespace kaon
