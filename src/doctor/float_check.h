#pragma once
#include <optional>

#include "doctor/patient.h"

namespace kaon {

/// Step 1. Runs the file's own graph and the prepared float model side by side, then the float model on all samples.
/// A cause where they differ, or where the float model does badly on these data; see diagnosis.h for the kinds.
struct FloatCheck {
  DoctorStep step;
  std::optional<Cause> cause;
  Scores exact;
};

FloatCheck check_float(Patient& patient);

}  // namespace kaon
