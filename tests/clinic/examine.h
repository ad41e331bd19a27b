#pragma once
#include <string>

#include "patients.h"

namespace kaon::clinic {

/// How many of them went well.
struct Score {
  int64_t patients = 0;
  int64_t cause = 0, with_cause = 0;
  int64_t layer = 0, with_layer = 0;
  int64_t restored = 0, curable = 0;
  int64_t healthy = 0, false_alarms = 0;

  std::string in_words() const;
  /// 95 % of the causes, 90 % of the layers, 90 % of the losses, and no false alarm.
  bool good() const;
};

/// Shows a patient to the doctor, prints a line about it, and counts.
void examine(const Patient& patient, Score& score);

}  // namespace kaon::clinic
