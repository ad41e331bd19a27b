#pragma once
#include "doctor/cures.h"
#include "doctor/patient.h"

namespace kaon {

/// What was prescribed at last, and all that was tried on the way.
struct TreatmentResult {
  std::vector<DoctorStep> steps;  ///< 3, 4 and 7
  std::vector<Trial> tried;
  std::vector<FrontPoint> front;
  Prescription prescription;
  std::vector<std::string> changes;
  bool target_met = false;
};

/// Steps 3, 4, 7 and 8: tries what fits the causes, the cheapest tier first, each on top of what was kept before it. A
/// treatment is kept where it takes harm away on samples that had no part in choosing it, beyond their noise (or
/// reaches the target and does no harm beyond noise), and the metric there is not worse. Ends when the target is met,
/// nothing is left, or time is up; then takes out again what proved unnecessary.
TreatmentResult treat(Patient& patient, const std::vector<Cause>& causes, const Scores& exact);

}  // namespace kaon
