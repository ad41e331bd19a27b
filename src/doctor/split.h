#pragma once
#include "doctor/patient.h"

namespace kaon {

/// Step 2: the metric with the quantizers of weights alone, of activations alone, of biases alone, and with all.
struct HarmSplit {
  DoctorStep step;
  Scores all;
  double weights = 0;  ///< mean harm
  double activations = 0;
  double biases = 0;
  double both = 0;
};

HarmSplit split_harm(Patient& patient, const Scores& exact);

}  // namespace kaon
