#pragma once
#include "doctor/cures.h"
#include "doctor/patient.h"

namespace kaon {

/// A quantizer that could have more bits (or none), what that would take away and what it would cost.
struct Upgrade {
  int64_t id = 0;  ///< in the model it was measured in
  std::string layer;
  Slot slot = Slot::Weight;
  SlotRule rule;
  double benefit = 0;  ///< harm of it alone
  double read = 0;     ///< bytes more that are read for a sample
  double stored = 0;   ///< bytes more in the file; activations cost none
};

/// Upgrades that may be made together, and what a few samples say of it.
struct UpgradeSet {
  std::vector<Upgrade> upgrades;
  size_t order = 0;   ///< the first `upgrades.size()` of this order
  double harm = 0;    ///< that is left when all of them are off
  double stored = 0;  ///< bytes more in the file
};

/// Mixed precision is searched along two orders of all upgrades: what pays best for a byte that is read, and what pays
/// best for a byte of the file, where activations are free. Errors hide one another, so it is sets that are measured.
struct UpgradePlan {
  std::vector<std::vector<Upgrade>> orders;  ///< one where both are the same
  /// The most harm first. Of two sets none has less harm, fewer bytes and fewer upgrades than the other.
  std::vector<UpgradeSet> sets;
};

/// Whether there is time to plan; see Patient::may_ask().
bool may_plan_upgrades(Patient& patient, const std::string& key, Tier tier);
/// Harm is measured on a few samples; `key` names `quantized` in the journal.
UpgradePlan plan_upgrades(Patient& patient, const QuantizedModel& quantized, const std::string& key, Tier tier);

}  // namespace kaon
