#include "doctor/doctor.h"

#include <algorithm>
#include <cmath>

#include "base/memory_usage.h"
#include "doctor/causes.h"
#include "doctor/float_check.h"
#include "doctor/sensitivity.h"
#include "doctor/split.h"
#include "doctor/treatment.h"

namespace kaon {
namespace {

/// What would be needed where nothing that is allowed was enough.
std::string advice_for(const Diagnosis& diagnosis, const DoctorOptions& options) {
  std::string text;
  const auto say = [&](const std::string& words) { text += (text.empty() ? "" : "; ") + words; };
  if (diagnosis.out_of_time) say("time ran out: --resume goes on with more");
  if (!options.allow.contains(Tier::Granularity))
    say("finer scales are not allowed here; --allow same,granularity tries them");
  if (!options.allow.contains(Tier::Bits)) {
    std::string where;
    for (size_t i = 0; i < std::min<size_t>(3, diagnosis.sensitivity.size()); ++i) {
      const Sensitivity& row = diagnosis.sensitivity[i];
      where += fmt::format("{}{} {}", i == 0 ? "" : ", ", row.layer, name_of(row.slot));
    }
    say("more bits are not allowed here; they would pay most at " + where);
  }
  if (options.allow.contains(Tier::Bits) && !diagnosis.out_of_time) {
    say("what is left needs training with quantization in the loop, or more and other calibration data");
  }
  return text;
}

class Examination {
 public:
  Examination(Patient& patient, const DoctorOptions& options) : patient_(patient), options_(options) {
    result_.seed = options.seed;
    result_.metric = patient_.scorer().facts().name;
    result_.lower_is_better = patient_.scorer().facts().lower_is_better;
    result_.before = patient_.quantized();
  }

  Diagnosis run() {
    FloatCheck check = check_float(patient_);
    const Scorer& scorer = patient_.scorer();
    exact_ = std::move(check.exact);
    result_.samples = patient_.samples();
    result_.exact = scorer.value(exact_);
    result_.target = scorer.facts().worse_by(result_.exact, options_.max_drop);
    result_.steps.push_back(check.step);
    HarmSplit split = split_harm(patient_, exact_);
    result_.quantized = result_.cured = scorer.value(split.all);
    set_held_out(split.all, split.all);
    result_.steps.push_back(split.step);
    if (check.cause) {
      result_.causes.push_back(*check.cause);
      if (check.cause->kind == CauseKind::DataMismatch) {
        result_.verdict = Verdict::DataMismatch;
        result_.advice = "nothing is cured before the data fit the model";
        return finish(patient_.as_brought_in());
      }
    }
    SensitivityResult sensitivity = measure_sensitivity(patient_);
    result_.sensitivity = std::move(sensitivity.rows);
    result_.steps.push_back(sensitivity.step);
    const MetricFacts& facts = scorer.facts();
    const double lost = facts.badness(result_.quantized) - facts.badness(result_.exact);
    if (lost <= options_.max_drop + 1e-9) {
      result_.verdict = Verdict::Healthy;
      return finish(patient_.as_brought_in());
    }
    Counterfactuals counterfactuals(patient_);
    CauseResult causes = find_causes(patient_, counterfactuals, result_.sensitivity);
    result_.causes.insert(result_.causes.end(), causes.causes.begin(), causes.causes.end());
    result_.steps.push_back(causes.step);
    TreatmentResult treatment = treat(patient_, causes.causes, exact_);
    for (DoctorStep& step : treatment.steps) result_.steps.push_back(std::move(step));
    result_.tried = std::move(treatment.tried);
    result_.front = std::move(treatment.front);
    result_.cure.changes = std::move(treatment.changes);
    const Scores& cured = patient_.try_out(treatment.prescription).scores;
    set_held_out(split.all, cured);
    result_.cured = scorer.value(cured);
    const double left = facts.badness(result_.cured) - facts.badness(result_.exact);
    result_.recovered = lost > 0 ? 1 - left / lost : 1;
    const bool helped = !result_.cure.changes.empty();
    result_.verdict = treatment.target_met ? Verdict::Cured : helped ? Verdict::Improved : Verdict::NotCured;
    return finish(treatment.prescription);
  }

 private:
  void set_held_out(const Scores& quantized, const Scores& cured) {
    const Scorer& scorer = patient_.scorer();
    const int64_t from = patient_.chosen();
    result_.held_out = {patient_.samples() - from, scorer.value(exact_, from), scorer.value(quantized, from),
                        scorer.value(cured, from)};
  }

  Diagnosis finish(const Prescription& prescription) {
    const Stopwatch watch;
    const double before = patient_.forwards();
    Cure& cure = result_.cure;
    cure.config = prescription.config;
    cure.calibrate_on_data = prescription.on_data || patient_.calibrates_on_data();
    cure.calibration_samples = prescription.on_data ? patient_.chosen() : patient_.calibration().size();
    const bool same = prescription == patient_.as_brought_in();
    result_.after = same ? patient_.quantized() : patient_.quantize_as(prescription);
    cure.bytes_before = stored_bytes(result_.before);
    cure.bytes = stored_bytes(result_.after);
    cure.bits_average = average_bits(result_.after);
    if (result_.verdict == Verdict::Healthy) result_.recovered = 1;
    result_.out_of_time = patient_.ran_out_of_time();
    if (result_.verdict == Verdict::Improved || result_.verdict == Verdict::NotCured) {
      result_.advice = advice_for(result_, options_);
    }
    DoctorStep step{.number = 8, .name = "verdict"};
    step.finding =
        fmt::format("{}: {} {:.4g} in float, {:.4g} quantized, {:.4g} as prescribed", enum_name(result_.verdict),
                    result_.metric, result_.exact, result_.quantized, result_.cured);
    step.seconds = watch.seconds();
    step.forwards = patient_.forwards() - before;
    result_.steps.push_back(step);
    // In the order of the flow; more bits and float are both step 7.
    std::ranges::stable_sort(result_.steps,
                             [](const DoctorStep& a, const DoctorStep& b) { return a.number < b.number; });
    result_.forwards = patient_.forwards();
    result_.seconds = patient_.seconds();
    result_.peak_mb = peak_memory_mb();
    return std::move(result_);
  }

  Patient& patient_;
  const DoctorOptions& options_;
  Diagnosis result_;
  Scores exact_;
};

}  // namespace

Diagnosis diagnose(const Model& model, const Config& config, const Dataset& data, const Dataset* calibration,
                   const DoctorOptions& options) {
  Patient patient(model, config, data, calibration, options);
  return Examination(patient, options).run();
}

Diagnosis diagnose(const QuantizedModel& quantized, const Dataset& data, const Dataset* calibration,
                   const DoctorOptions& options) {
  Patient patient(quantized, data, calibration, options);
  return Examination(patient, options).run();
}

}  // namespace kaon
