#include "doctor/search.h"

#include <algorithm>

#include "engine/engine.h"

namespace kaon {
namespace {

constexpr int64_t kSamples = 32;
constexpr double kMatters = 0.02;  ///< of the harm of all of them

/// Elements of each value that a quantizer of an activation reads, for one sample.
std::map<std::string, double> elements_of(const Patient& patient, const QuantizedModel& quantized) {
  std::map<std::string, double> elements;
  const int64_t batch = patient.batch();
  const TensorMap inputs = patient.data().read(0, batch).inputs;
  for (const auto& [name, tensor] : inputs)
    elements[name] = static_cast<double>(tensor.size()) / static_cast<double>(batch);
  Hooks hooks;
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (!quantizer.is_activation() || elements.contains(quantizer.tensor)) continue;
    elements[quantizer.tensor] = 0;
    hooks.watch(quantizer.tensor, [&, batch](const std::string& name, std::span<const float> values) {
      elements[name] += static_cast<double>(values.size()) / static_cast<double>(batch);
    });
  }
  Engine(quantized.model).run(inputs, hooks);
  return elements;
}

}  // namespace

std::vector<Upgrade> find_upgrades(Patient& patient, const QuantizedModel& quantized, const std::string& key,
                                   Tier tier) {
  std::vector<Upgrade> upgrades;
  std::vector<Question> questions;
  Question off;
  off.on.resize(quantized.quantizers.size());
  const std::map<std::string, double> elements = elements_of(patient, quantized);
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (!quantizer.enabled || quantizer.kind == Slot::Bias) continue;
    Upgrade upgrade;
    const int bits = format(quantizer.spec.format).bits;
    int wider = 32;
    if (tier == Tier::Bits) {
      const std::optional<std::string> name = wider_format(quantizer.spec.format);
      if (!name) continue;
      Spec spec = spec_of(quantizer);
      spec.format = *name;
      wider = format(*name).bits;
      upgrade.rule = spec;
    } else {
      upgrade.rule = SlotRule::stays_float();
    }
    const auto count = quantizer.is_activation() ? elements.at(quantizer.tensor)
                                                 : static_cast<double>(constant_of(quantized, quantizer.tensor).size());
    upgrade.id = quantizer.id;
    upgrade.layer = quantizer.serves.front().layer;
    upgrade.slot = quantizer.serves.front().slot;
    upgrade.cost = count * (wider - bits) / 8;
    upgrades.push_back(std::move(upgrade));
    questions.push_back(off);
    questions.back().on[static_cast<size_t>(quantizer.id)] = true;
  }
  const std::vector<Scores> scores = patient.ask(fmt::format("upgrades to {} of {}", enum_name(tier), key), quantized,
                                                 off, questions, 0, patient.first_samples(kSamples).size());
  for (size_t i = 0; i < upgrades.size(); ++i) upgrades[i].benefit = patient.scorer().mean_harm(scores[i]);
  // Those that hardly matter come last, however cheap they are.
  double sum = 0;
  for (const Upgrade& upgrade : upgrades) sum += upgrade.benefit;
  std::ranges::stable_sort(upgrades, [&](const Upgrade& a, const Upgrade& b) {
    const bool a_matters = a.benefit >= kMatters * sum, b_matters = b.benefit >= kMatters * sum;
    if (a_matters != b_matters) return a_matters;
    return a.benefit * std::max(b.cost, 1.0) > b.benefit * std::max(a.cost, 1.0);
  });
  return upgrades;
}

}  // namespace kaon
