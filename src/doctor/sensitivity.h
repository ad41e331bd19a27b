#pragma once
#include "doctor/patient.h"

namespace kaon {

struct SensitivityResult {
  DoctorStep step;
  std::vector<Sensitivity> rows;  ///< worst first
};

/// Step 5: every quantizer of a weight or an activation switched on alone, and switched off alone. A glance at a few
/// samples orders the work, so that what was measured when time runs out is the worst; those whose order matters and
/// is in doubt get more samples.
SensitivityResult measure_sensitivity(Patient& patient);

}  // namespace kaon
