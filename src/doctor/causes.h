#pragma once
#include "doctor/counterfactuals.h"
#include "doctor/patient.h"

namespace kaon {

struct CauseResult {
  DoctorStep step;
  std::vector<Cause> causes;  ///< worst first
};

/// Steps 3, 4 and 6: what is wrong with the quantizers that do most of the harm. Each is tried alone in the float
/// model, as it is and without one fault; the fault whose removal takes most of its harm away is its own. Then all
/// quantizers of one fault are freed of it at once, in the quantized model and in the float one: that is the cause's
/// share.
CauseResult find_causes(Patient& patient, Counterfactuals& counterfactuals,
                        const std::vector<Sensitivity>& sensitivity);

}  // namespace kaon
