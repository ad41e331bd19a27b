#pragma once
#include "doctor/brought_in.h"
#include "doctor/diagnosis.h"
#include "doctor/patient.h"

namespace kaon {

/// From "accuracy fell" to a named cause and a cure that was measured, in eight steps; docs/doctor.md walks through
/// them. Without `calibration`, the half of `data` that cures are chosen by serves (512 samples of it at most), and the
/// other half confirms. Everything that is measured lies in `options.journal`, so that a run that was killed goes on
/// where it was.
Diagnosis diagnose(const Model& model, const Config& config, const Dataset& data, const Dataset* calibration,
                   const DoctorOptions& options = {});

/// The same for a model that was quantized already; see read_quantizers(). Cures start from its float values.
Diagnosis diagnose(const QuantizedModel& quantized, const Dataset& data, const Dataset* calibration,
                   const DoctorOptions& options = {});

}  // namespace kaon
