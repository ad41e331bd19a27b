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
  double cost = 0;     ///< bytes more that are read for a sample
};

/// All upgrades of `quantized`, the one that pays best for a byte first. Harm is measured on a few samples.
std::vector<Upgrade> find_upgrades(Patient& patient, const QuantizedModel& quantized, const std::string& key,
                                   Tier tier);

}  // namespace kaon
