#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/enum_names.h"
#include "graph/layer.h"
#include "quant/quantizer.h"

namespace kaon {

// What the doctor finds: the float model's figure on the data, the quantized model's, which quantizers cost the
// difference, why, and what takes it back. One struct for each part of diagnosis.json.
//
// Two figures are told apart. The metric is what the user asked for. The harm is what decisions are made by: how far
// the outputs of a sample are from the float model's (KL divergence where the output holds classes, else squared
// error over energy). It needs no labels, and tells models apart on far fewer samples than an accuracy does.

enum class Verdict { Healthy, Cured, Improved, NotCured, DataMismatch };

template <>
struct EnumNames<Verdict> {
  static constexpr std::string_view kKind = "verdict";
  static constexpr std::pair<std::string_view, Verdict> kAll[] = {{"healthy", Verdict::Healthy},
                                                                  {"cured", Verdict::Cured},
                                                                  {"improved", Verdict::Improved},
                                                                  {"not cured", Verdict::NotCured},
                                                                  {"data_mismatch", Verdict::DataMismatch}};
};

enum class CauseKind {
  DataMismatch,
  FloatMismatch,
  CalibrationMismatch,
  WeightChannelImbalance,
  WeightOutliers,
  WeightResolution,
  BiasShift,
  ActivationOutliers,
  ActivationChannelImbalance,
  ActivationResolution,
  Overflow,
  SensitivePlace,
};

template <>
struct EnumNames<CauseKind> {
  static constexpr std::string_view kKind = "cause";
  static constexpr std::pair<std::string_view, CauseKind> kAll[] = {
      {"data_mismatch", CauseKind::DataMismatch},
      {"float_mismatch", CauseKind::FloatMismatch},
      {"calibration_mismatch", CauseKind::CalibrationMismatch},
      {"weight_channel_imbalance", CauseKind::WeightChannelImbalance},
      {"weight_outliers", CauseKind::WeightOutliers},
      {"weight_resolution", CauseKind::WeightResolution},
      {"bias_shift", CauseKind::BiasShift},
      {"activation_outliers", CauseKind::ActivationOutliers},
      {"activation_channel_imbalance", CauseKind::ActivationChannelImbalance},
      {"activation_resolution", CauseKind::ActivationResolution},
      {"overflow", CauseKind::Overflow},
      {"sensitive_place", CauseKind::SensitivePlace}};
};

/// What a cure may cost, cheapest first: formats and size stay, finer scales, more bits, no quantization.
enum class Tier { Same, Granularity, Bits, Float };

template <>
struct EnumNames<Tier> {
  static constexpr std::string_view kKind = "cure";
  static constexpr std::pair<std::string_view, Tier> kAll[] = {
      {"same", Tier::Same}, {"granularity", Tier::Granularity}, {"bits", Tier::Bits}, {"float", Tier::Float}};
};

using Numbers = std::vector<std::pair<std::string, double>>;

/// One of the eight steps.
struct DoctorStep {
  int number = 0;
  std::string name;
  std::string finding;
  double seconds = 0;
  double forwards = 0;  ///< passes over the data; one that starts in the middle of the model counts whole
  Numbers numbers;
};

/// What one quantizer does to the outputs.
struct Sensitivity {
  int64_t id = 0;
  std::string layer;
  Slot slot = Slot::Input;
  std::string tensor;
  std::string format;
  int64_t samples = 0;      ///< that it was measured on
  double only_this = 0;     ///< the metric with this quantizer alone
  double without_this = 0;  ///< the metric with all but this one
  double gain = 0;          ///< share of the harm that goes when it alone is off …
  double low = 0;           ///< … and the interval around it that holds in 95 of 100 cases
  double high = 0;
  double alone = 0;    ///< harm of it alone
  double kl = 0;       ///< KL divergence of it alone; NaN where the output holds no classes
  double sqnr_db = 0;  ///< of the output with it alone
  double share = 0;    ///< what rows are ranked by: its part of the harm, by both measures
};

/// Why accuracy was lost.
struct Cause {
  CauseKind kind = CauseKind::SensitivePlace;
  std::vector<int64_t> quantizers;  ///< worst first
  std::vector<std::string> layers;  ///< theirs
  std::vector<Slot> slots;
  double share = 0;  ///< of the harm: what goes with this one thing removed from all of `quantizers`
  std::string confirmed_by;
  Numbers evidence;
  std::string text;
};

/// A cure that was measured.
struct Trial {
  std::string cure;
  Tier tier = Tier::Same;
  std::vector<std::string> layers;  ///< empty: the whole model
  double before = 0;                ///< the metric
  double after = 0;
  double harm_before = 0;  ///< on samples that had no part in choosing the cure
  double harm_after = 0;
  bool kept = false;
  int64_t bytes = 0;
  double seconds = 0;
  std::string note;  ///< why it was not kept, or why it could not be tried
};

/// A point of the front: no other that was looked at has both fewer bytes and a better metric.
struct FrontPoint {
  int64_t bytes = 0;
  double metric = 0;
  std::string name;
  Config config;
};

/// What is prescribed.
struct Cure {
  Config config;
  std::vector<std::string> changes;
  int64_t calibration_samples = 0;
  bool calibrate_on_data = false;  ///< these are the first of the evaluation data
  int64_t bytes_before = 0;        ///< as it was brought in
  int64_t bytes = 0;
  double bits_average = 0;  ///< of the quantized layers' weights, scales aside
};

/// The same figures on samples that had no part in choosing.
struct HeldOut {
  int64_t samples = 0;
  double exact = 0;
  double quantized = 0;
  double cured = 0;
};

struct Diagnosis {
  std::string model;               ///< filled in by the caller
  std::string scheme;              ///< filled in by the caller
  std::vector<std::string> notes;  ///< filled in by the caller: what was changed before anything was measured
  std::string metric;
  int64_t samples = 0;
  bool lower_is_better = false;
  double exact = 0;  ///< "float"
  double quantized = 0;
  double target = 0;
  double cured = 0;
  double recovered = 0;  ///< share of the lost metric that the cure takes back; 1 where none was lost
  HeldOut held_out;
  Verdict verdict = Verdict::Healthy;
  std::string advice;  ///< what would be needed where the target was not met
  std::vector<DoctorStep> steps;
  std::vector<Cause> causes;             ///< worst first
  std::vector<Sensitivity> sensitivity;  ///< worst first
  std::vector<Trial> tried;
  std::vector<FrontPoint> front;
  Cure cure;
  bool out_of_time = false;
  double forwards = 0;
  double seconds = 0;
  double peak_mb = 0;
  uint64_t seed = 0;

  /// The quantized model as it was brought in, and as it is prescribed; for pictures and files.
  QuantizedModel before;
  QuantizedModel after;
};

}  // namespace kaon
