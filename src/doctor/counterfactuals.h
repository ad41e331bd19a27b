#pragma once
#include <optional>
#include <string>
#include <vector>

#include "doctor/patient.h"

namespace kaon {

/// One thing that may be wrong with a quantizer, and the same quantizer without it.
struct Counterfactual {
  CauseKind kind = CauseKind::SensitivePlace;
  std::string name;  ///< what was done: "a scale for each channel"
};

/// Makes the patient's quantizers as they would be without one fault each. What all of them need (ranges from the
/// evaluation data, a search of ranges, equalized weights …) is made once, when it is first asked for.
class Counterfactuals {
 public:
  explicit Counterfactuals(Patient& patient) : patient_(patient) {}

  /// The faults that quantizer `id` shows signs of and that can be taken from it alone, the most particular first.
  std::vector<Counterfactual> of(int64_t id);
  /// Changes `question` so that quantizer `id` is without the fault `kind`. False where it cannot be asked this way:
  /// activations with a scale for each channel need a model of their own, by_channel().
  bool apply(CauseKind kind, int64_t id, Question& question);
  /// The patient with a scale for each channel on these activations.
  const QuantizedModel& by_channel(const std::vector<int64_t>& ids);
  /// The patient with two bits more on these activations, and their ranges as they are.
  QuantizedModel with_smaller_steps(const std::vector<int64_t>& ids) const;

  /// The evaluation data's own ranges.
  const QuantizedModel& on_data();

 private:
  const Quantizer& quantizer(int64_t id) const { return patient_.quantized().quantizers[static_cast<size_t>(id)]; }
  const Layer* layer_of(int64_t id) const;
  Tensor error_of(int64_t id) const;
  bool errors_have_a_sign(int64_t id) const;
  Tensor centred_weight(int64_t id) const;
  bool far_narrower(int64_t id, const QuantizedModel& other) const;
  std::optional<Tensor> finer_weight(int64_t id, bool of_inputs) const;
  const QuantizedModel* with_algorithm(const std::string& name);
  const QuantizedModel& least_error();
  QuantizedModel recalibrated(QuantizedModel model, const Dataset& samples);

  Patient& patient_;
  std::map<std::string, std::optional<QuantizedModel>> by_algorithm_;
  std::optional<QuantizedModel> on_data_;
  std::optional<QuantizedModel> least_error_;
  std::map<std::vector<int64_t>, QuantizedModel> by_channel_;
  std::map<int64_t, bool> reads_unequal_;  ///< by weight: the channels it reads differ more than those it makes
};

}  // namespace kaon
