#pragma once
#include <functional>
#include <string>
#include <vector>

#include "doctor/patient.h"

namespace kaon {

/// One change of how the model is quantized.
struct Treatment {
  std::string name;
  Tier tier = Tier::Same;
  std::vector<std::string> layers;  ///< empty: the whole model
  std::function<void(Prescription&)> apply;
};

/// The treatments of one tier that fit the causes, the worst cause's first, then what helps in general.
std::vector<Treatment> treatments_for(const Patient& patient, const std::vector<Cause>& causes, Tier tier);

/// The spec of a quantizer as a config says it.
Spec spec_of(const Quantizer& quantizer);
/// The quantizer without what it does for operators that are no layers.
Quantizer serving_layers(const QuantizedModel& quantized, Quantizer quantizer);
/// Gives every slot that `quantizer` serves the rule `rule`.
void set_rule(Config& config, const Quantizer& quantizer, const SlotRule& rule);
/// Puts an algorithm where it belongs among those of the config; one of the same kind is replaced.
void add_algorithm(Config& config, const AlgorithmConfig& algorithm);
/// The same numbers with the next larger number of bits, or nothing where there is none.
std::optional<std::string> wider_format(const std::string& format);

}  // namespace kaon
