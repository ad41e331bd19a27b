#include "doctor/search.h"

#include <algorithm>

#include "engine/engine.h"

namespace kaon {
namespace {

constexpr int64_t kSamples = 32;
constexpr double kMatters = 0.02;  ///< of the harm of all of them

/// What the journal calls them: each upgrade alone, and sets of them.
std::string name_of_upgrades(const std::string& key, Tier tier) {
  return fmt::format("upgrades to {} of {}", enum_name(tier), key);
}
std::string name_of_sets(const std::string& key, Tier tier) { return "sets of " + name_of_upgrades(key, tier); }

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

/// All that can be upgraded, each with its harm alone.
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
    upgrade.read = count * (wider - bits) / 8;
    upgrade.stored = quantizer.is_activation() ? 0 : upgrade.read;
    upgrades.push_back(std::move(upgrade));
    questions.push_back(off);
    questions.back().on[static_cast<size_t>(quantizer.id)] = true;
  }
  const std::vector<Scores> scores =
      patient.ask(name_of_upgrades(key, tier), quantized, off, questions, 0, patient.first_samples(kSamples).size());
  for (size_t i = 0; i < upgrades.size(); ++i) upgrades[i].benefit = patient.scorer().mean_harm(scores[i]);
  return upgrades;
}

/// The one that pays best for a byte first; those that hardly matter come last, however cheap they are.
std::vector<Upgrade> ordered(std::vector<Upgrade> upgrades, double Upgrade::*cost) {
  double sum = 0;
  for (const Upgrade& upgrade : upgrades) sum += upgrade.benefit;
  std::ranges::stable_sort(upgrades, [&](const Upgrade& a, const Upgrade& b) {
    const bool a_free = a.*cost == 0, b_free = b.*cost == 0;
    if (a_free != b_free) return a_free;
    if (a_free) return a.benefit > b.benefit;
    const bool a_matters = a.benefit >= kMatters * sum, b_matters = b.benefit >= kMatters * sum;
    if (a_matters != b_matters) return a_matters;
    return a.benefit * b.*cost > b.benefit * a.*cost;
  });
  return upgrades;
}

bool beats(const UpgradeSet& a, const UpgradeSet& b) {
  const bool as_good = a.harm <= b.harm && a.stored <= b.stored && a.upgrades.size() <= b.upgrades.size();
  return as_good && (a.harm < b.harm || a.stored < b.stored || a.upgrades.size() < b.upgrades.size());
}

}  // namespace

bool may_plan_upgrades(Patient& patient, const std::string& key, Tier tier) {
  const int64_t count = patient.first_samples(kSamples).size();
  return patient.may_ask(name_of_upgrades(key, tier), 0, count) && patient.may_ask(name_of_sets(key, tier), 0, count);
}

UpgradePlan plan_upgrades(Patient& patient, const QuantizedModel& quantized, const std::string& key, Tier tier) {
  UpgradePlan plan;
  const std::vector<Upgrade> all = find_upgrades(patient, quantized, key, tier);
  if (all.empty()) return plan;
  plan.orders.push_back(ordered(all, &Upgrade::read));
  std::vector<Upgrade> by_file = ordered(all, &Upgrade::stored);
  if (!std::ranges::equal(by_file, plan.orders[0], {}, &Upgrade::id, &Upgrade::id)) {
    plan.orders.push_back(std::move(by_file));
  }
  Question as_it_is;
  for (const Quantizer& quantizer : quantized.quantizers) as_it_is.on.push_back(quantizer.enabled);
  std::vector<UpgradeSet> sets;
  std::vector<Question> questions;
  for (size_t order = 0; order < plan.orders.size(); ++order) {
    for (int64_t count = 1;; count *= 2) {
      const int64_t taken = std::min(count, std::ssize(all));
      if (taken == std::ssize(all) && order > 0) break;  // all of them are all of them
      UpgradeSet set;
      set.order = order;
      set.upgrades.assign(plan.orders[order].begin(), plan.orders[order].begin() + taken);
      questions.push_back(as_it_is);
      for (const Upgrade& upgrade : set.upgrades) {
        set.stored += upgrade.stored;
        questions.back().on[static_cast<size_t>(upgrade.id)] = false;
      }
      sets.push_back(std::move(set));
      if (taken == std::ssize(all)) break;
    }
  }
  const std::vector<Scores> scores =
      patient.ask(name_of_sets(key, tier), quantized, as_it_is, questions, 0, patient.first_samples(kSamples).size());
  for (size_t i = 0; i < sets.size(); ++i) sets[i].harm = patient.scorer().mean_harm(scores[i]);
  for (const UpgradeSet& set : sets) {
    if (std::ranges::none_of(sets, [&](const UpgradeSet& other) { return beats(other, set); })) {
      plan.sets.push_back(set);
    }
  }
  std::ranges::stable_sort(plan.sets, [](const UpgradeSet& a, const UpgradeSet& b) { return a.harm > b.harm; });
  return plan;
}

}  // namespace kaon
