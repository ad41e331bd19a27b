#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "base/stopwatch.h"
#include "doctor/diagnosis.h"
#include "doctor/journal.h"
#include "doctor/part.h"
#include "doctor/scores.h"
#include "quant/what_if.h"

namespace kaon {

struct DoctorOptions {
  std::string metric;            ///< "" = what the data allow; see metric_facts()
  double max_drop = 0.01;        ///< how much of the metric may be lost
  std::optional<double> expect;  ///< the float model's metric, where the user knows it
  std::set<Tier> allow = {Tier::Same, Tier::Granularity, Tier::Bits, Tier::Float};
  double time = 0;  ///< seconds after which no further work is begun; 0 = as long as it takes
  int64_t batch = 8;
  uint64_t seed = 0;
  std::filesystem::path journal;  ///< "" = none
  bool resume = false;
  std::string subject;  ///< what the journal must belong to: model, config, data, as the caller names them
  Progress* progress = &no_progress();
};

/// A way to quantize the patient.
struct Prescription {
  Config config;
  bool on_data = false;     ///< calibrate on the evaluation data's chosen() samples
  bool as_brought = false;  ///< with the parameters of a file that was quantized already, whatever the config says

  bool operator==(const Prescription&) const = default;
};

/// What it is called in the journal.
std::string key_of(const Prescription& prescription);

/// What came of one.
struct Outcome {
  Scores scores;
  int64_t bytes = 0;
  double bits = 0;
  double seconds = 0;
  std::string error;  ///< why it could not be made; else empty
};

/// The model under examination, its data, and every way to measure something on it. Whatever is measured is noted in
/// the journal, and counted in forwards() whether it was measured now or before.
class Patient {
 public:
  Patient(const Model& model, const Config& config, const Dataset& data, const Dataset* calibration,
          const DoctorOptions& options);
  /// One that was quantized already; see read_quantizers().
  Patient(const QuantizedModel& brought, const Dataset& data, const Dataset* calibration, const DoctorOptions& options);

  const Model& file() const { return model_; }
  const DoctorOptions& options() const { return options_; }
  const Dataset& data() const { return data_; }
  const Dataset& calibration() const { return *calibration_; }
  /// Whether that is a part of the evaluation data: [0, chosen()), and no more than needed.
  bool calibrates_on_data() const { return own_calibration_.has_value(); }
  /// As it was brought in.
  const QuantizedModel& quantized() const { return quantized_; }
  const Prescription& as_brought_in() const { return as_brought_in_; }
  Scorer& scorer() { return scorer_; }
  const Scorer& scorer() const { return scorer_; }
  int64_t batch() const { return batch_; }
  /// Samples [0, chosen()) are for choosing, the others for confirming.
  int64_t chosen() const { return chosen_; }
  /// Samples that are looked at; fewer than the data hold where their outputs would not fit into memory.
  int64_t samples() const { return samples_; }
  /// `count` of the samples to choose by, in whole batches.
  Part first_samples(int64_t count) const;

  /// Whether there is time to measure it; what the journal holds takes none.
  bool may_ask(const std::string& key, int64_t first, int64_t count);
  bool may_try(const Prescription& prescription);
  /// Whether one of them said no.
  bool ran_out_of_time() const { return ran_out_of_time_; }
  double seconds() const { return watch_.seconds(); }
  double forwards() const { return forwards_; }
  void count_samples(double samples) { forwards_ += samples / static_cast<double>(samples_); }

  /// Runs the float model on all samples and keeps its outputs.
  void run_float();
  /// Each question's scores on samples [first, first + count). `key` names the questions in the journal.
  std::vector<Scores> ask(const std::string& key, const QuantizedModel& quantized, const Question& base,
                          std::span<const Question> questions, int64_t first, int64_t count);
  Question as_it_is() const;
  Question all_off() const;

  QuantizedModel quantize_as(const Prescription& prescription);
  /// Quantizes and scores on all samples.
  const Outcome& try_out(const Prescription& prescription);

 private:
  bool may_measure(const std::string& key);
  Patient(const Model& model, const Dataset& data, const Dataset* calibration, const DoctorOptions& options);
  Scores evaluate(const QuantizedModel& quantized);
  /// What is scored: the first output. For sqnr_db all floating-point outputs, each with the same weight.
  Tensor scored(const std::vector<Tensor>& outputs) const;
  void weigh(const std::vector<Tensor>& outputs, int64_t samples);

  const Model& model_;
  const Dataset& data_;
  const Dataset* calibration_;
  std::optional<Part> own_calibration_;
  DoctorOptions options_;
  Stopwatch watch_;
  Journal journal_;
  Scorer scorer_;
  QuantizedModel quantized_;
  Prescription as_brought_in_;
  std::vector<double> weights_;  ///< of the outputs that are scored together; empty: the first alone
  int64_t batch_ = 8;
  int64_t samples_ = 0;
  int64_t chosen_ = 0;
  double forwards_ = 0;
  bool ran_out_of_time_ = false;
  std::map<std::string, Outcome> outcomes_;  ///< by prescription
};

/// A constant of the quantized model as it was before algorithms chose codes for it, as float32.
Tensor exact_constant(const QuantizedModel& quantized, const std::string& name);
/// Bytes of the model's constants as they would be stored: codes, scales, zero points, and the rest as it is.
int64_t stored_bytes(const QuantizedModel& quantized);
/// Bits of a weight of the layers, on average over all of them; 32 for those that are not quantized.
double average_bits(const QuantizedModel& quantized);

}  // namespace kaon
