#include "doctor/causes.h"

#include <algorithm>
#include <cmath>

#include "graph/stored.h"
#include "numerics/error_metrics.h"
#include "numerics/moments.h"
#include "quant/placement.h"

namespace kaon {
namespace {

constexpr int64_t kSamples = 64;
constexpr size_t kMostGuilty = 24;
constexpr double kExplained = 0.9;    ///< share of the harm that the guilty ones hold together
constexpr double kLeastShare = 0.01;  ///< of the harm; below it nobody is guilty
constexpr double kMost = 0.5;         ///< of a quantizer's harm: what must go with its fault
constexpr double kClose = 0.05;       ///< of two faults this close the more particular one is named
constexpr double kMostCoarse = 0.75;  ///< the same below 8 bits, where anything that makes steps smaller helps
constexpr double kFineDb = 34;        ///< from here on an error is small

struct Guilty {
  int64_t id = 0;
  double share = 0;
  CauseKind kind = CauseKind::SensitivePlace;
  std::string by;
  double gone = 0;  ///< share of its harm that goes with the fault
  bool non_finite = false;
};

/// SQNR of a weight as quantized, the mean over its channels; and the largest over the median channel.
struct WeightFacts {
  double sqnr_db = 0;
  double imbalance = 1;
  double kurtosis = 0;
};

class Examination {
 public:
  Examination(Patient& patient, Counterfactuals& counterfactuals, const std::vector<Sensitivity>& rows)
      : patient_(patient),
        counterfactuals_(counterfactuals),
        rows_(rows),
        count_(patient.first_samples(kSamples).size()) {}

  std::vector<Cause> run() {
    choose_guilty();
    std::string key = "faults";
    for (const Guilty& one : guilty_) key += " " + std::to_string(one.id);
    if (guilty_.empty() || !patient_.may_ask(key, 0, count_)) return {};
    name_faults(key);
    return confirm();
  }

 private:
  const Quantizer& quantizer(int64_t id) const { return patient_.quantized().quantizers[static_cast<size_t>(id)]; }

  void choose_guilty() {
    double sum = 0;
    for (const Sensitivity& row : rows_) {
      if (guilty_.size() == kMostGuilty || sum >= kExplained || row.share < kLeastShare) break;
      Guilty one;
      one.id = row.id;
      one.share = row.share;
      guilty_.push_back(one);
      sum += row.share;
    }
  }

  Question alone(int64_t id) const {
    Question question = patient_.all_off();
    question.on[static_cast<size_t>(id)] = true;
    return question;
  }

  void name_faults(const std::string& key) {
    struct Asked {
      size_t guilty;
      Counterfactual fault;
      size_t question;
    };
    std::vector<Question> questions;
    std::vector<Asked> asked;
    std::vector<size_t> plain;  // by guilty: the question as it is
    std::vector<int64_t> by_channel;
    for (size_t g = 0; g < guilty_.size(); ++g) {
      const int64_t id = guilty_[g].id;
      plain.push_back(questions.size());
      questions.push_back(alone(id));
      for (const Counterfactual& fault : counterfactuals_.of(id)) {
        Question question = alone(id);
        if (fault.kind == CauseKind::ActivationChannelImbalance) {
          by_channel.push_back(id);
          asked.push_back({g, fault, questions.size()});
          questions.push_back(std::move(question));  // answered by the other model
          continue;
        }
        if (!counterfactuals_.apply(fault.kind, id, question)) continue;
        asked.push_back({g, fault, questions.size()});
        questions.push_back(std::move(question));
      }
    }
    const Question off = patient_.all_off();
    std::vector<Scores> scores = patient_.ask(key, patient_.quantized(), off, questions, 0, count_);
    const Scorer& scorer = patient_.scorer();
    std::vector<double> smaller_steps(guilty_.size());  // harm with two bits more
    if (!by_channel.empty()) {
      std::ranges::sort(by_channel);
      std::vector<Question> others;
      std::vector<const Asked*> places;
      for (const Asked& one : asked) {
        if (one.fault.kind != CauseKind::ActivationChannelImbalance) continue;
        others.push_back(alone(guilty_[one.guilty].id));
        places.push_back(&one);
      }
      const std::vector<Scores> found =
          patient_.ask("by channel " + key, counterfactuals_.by_channel(by_channel), off, others, 0, count_);
      const std::vector<Scores> finer =
          patient_.ask("smaller steps " + key, counterfactuals_.with_smaller_steps(by_channel), off, others, 0, count_);
      for (size_t i = 0; i < places.size(); ++i) {
        scores[places[i]->question] = found[i];
        smaller_steps[places[i]->guilty] = scorer.mean_harm(finer[i]);
      }
    }
    // Scales for each channel make steps smaller, too: channels differ where they do more than two bits would.
    std::erase_if(asked, [&](const Asked& one) {
      return one.fault.kind == CauseKind::ActivationChannelImbalance &&
             scorer.mean_harm(scores[one.question]) > smaller_steps[one.guilty];
    });
    for (size_t g = 0; g < guilty_.size(); ++g) {
      Guilty& one = guilty_[g];
      one.non_finite = scores[plain[g]].non_finite > 0;
      const double harm = scorer.mean_harm(scores[plain[g]]);
      const bool coarse = format(quantizer(one.id).spec.format).bits < 8;
      double best = 0;
      for (const Asked& a : asked) {
        if (a.guilty != g || harm <= 0) continue;
        best = std::max(best, 1 - scorer.mean_harm(scores[a.question]) / harm);
      }
      for (const Asked& a : asked) {
        if (a.guilty != g || harm <= 0) continue;
        const double gone = 1 - scorer.mean_harm(scores[a.question]) / harm;
        // A shift of the mean is one whatever the steps are.
        const double most = coarse && a.fault.kind != CauseKind::BiasShift ? kMostCoarse : kMost;
        if (gone < most || gone < best - kClose) continue;
        one.kind = a.fault.kind;
        one.by = a.fault.name;
        one.gone = gone;
        break;
      }
      if (one.by.empty()) name_rest(one);
      if (overflows(one)) {
        one.kind = CauseKind::Overflow;
        one.by = "the quantizer switched off";
      }
    }
  }

  /// No single fault: too few steps, or a place where little is too much.
  void name_rest(Guilty& one) {
    const Quantizer& own = quantizer(one.id);
    one.by = "the quantizer switched off";
    one.gone = 1;
    if (own.kind == Slot::Weight) {
      one.kind = weight_facts(own).sqnr_db < kFineDb ? CauseKind::WeightResolution : CauseKind::SensitivePlace;
      return;
    }
    const bool coarse = format(own.spec.format).bits < 8 || steps_db(own) < kFineDb;
    one.kind = coarse ? CauseKind::ActivationResolution : CauseKind::SensitivePlace;
  }

  /// Values beyond the largest number of a float format.
  bool overflows(const Guilty& one) {
    const Quantizer& own = quantizer(one.id);
    const Format& f = format(own.spec.format);
    if (f.kind != FormatKind::Float) return false;
    if (one.non_finite) return true;
    if (own.kind == Slot::Weight) {
      Moments moments;
      moments.update(float_view(constant_of(patient_.quantized(), own.tensor)));
      return own.params.scale.size() == 1 && moments.absmax() > f.max() * own.params.scale[0] * 1.01;
    }
    if (own.params.scale.size() != 1 || own.dynamic) return false;
    const Range seen = counterfactuals_.on_data().quantizers[static_cast<size_t>(one.id)].observed;
    return std::max(-seen.min, seen.max) > f.max() * own.params.scale[0] * 1.1;
  }

  WeightFacts weight_facts(const Quantizer& own) const {
    WeightFacts facts;
    const QuantizedModel& quantized = patient_.quantized();
    const Tensor exact = exact_constant(quantized, own.tensor);
    std::vector<float> values(static_cast<size_t>(exact.size()));
    own.apply(float_view(constant_of(quantized, own.tensor)), values, exact.shape());
    const auto layer =
        std::ranges::find_if(quantized.layers, [&](const Layer& one) { return one.name == own.serves.front().layer; });
    const int64_t axis = layer == quantized.layers.end() ? 0 : channel_axis(quantized.model.graph, *layer);
    ChannelMoments before;
    before.update(exact.as<float>(), exact.shape(), axis);
    std::vector<float> error = values;
    std::ranges::transform(error, exact.as<float>(), error.begin(), std::minus<>());
    ChannelMoments after;
    after.update(error, exact.shape(), axis);
    std::vector<double> size;
    double sum = 0;
    int64_t counted = 0;
    for (size_t c = 0; c < before.channels().size(); ++c) {
      const Moments& x = before.channels()[c];
      const Moments& e = after.channels()[c];
      size.push_back(x.absmax());
      const double energy = x.variance() + x.mean * x.mean;
      const double noise = e.variance() + e.mean * e.mean;
      if (energy == 0) continue;
      sum += noise / energy;
      ++counted;
    }
    facts.sqnr_db = counted == 0 || sum == 0 ? INFINITY : -10 * std::log10(sum / static_cast<double>(counted));
    std::ranges::sort(size);
    const double median = size.empty() ? 0 : size[size.size() / 2];
    facts.imbalance = median > 0 ? size.back() / median : 1;
    facts.kurtosis = before.total().kurtosis();
    return facts;
  }

  /// What the steps of an activation's range would leave of values spread evenly over what was seen.
  double steps_db(const Quantizer& own) const {
    if (own.params.scale.size() != 1) return 6.02 * format(own.spec.format).bits;
    const double width = own.observed.max - own.observed.min;
    return width <= 0 ? 0 : 20 * std::log10(width / own.params.scale[0]);
  }

  std::vector<Cause> confirm() {
    std::map<CauseKind, std::vector<Guilty>> groups;
    for (const Guilty& one : guilty_) groups[one.kind].push_back(one);
    std::vector<Cause> causes;
    for (const auto& [kind, members] : groups) causes.push_back(confirm(kind, members));
    std::ranges::stable_sort(causes, [](const Cause& a, const Cause& b) { return a.share > b.share; });
    return causes;
  }

  Cause confirm(CauseKind kind, const std::vector<Guilty>& members) {
    Cause cause;
    cause.kind = kind;
    cause.confirmed_by = members.front().by;
    std::string key = std::string("confirm ") + std::string(enum_name(kind));
    for (const Guilty& one : members) {
      const Quantizer& own = quantizer(one.id);
      cause.quantizers.push_back(one.id);
      cause.layers.push_back(own.serves.front().layer);
      cause.slots.push_back(own.serves.front().slot);
      key += " " + std::to_string(one.id);
    }
    // In the quantized model, and the guilty ones alone in the float model: as they are, and without their fault.
    const Question all = patient_.as_it_is();
    Question few = patient_.all_off();
    for (const Guilty& one : members) few.on[static_cast<size_t>(one.id)] = true;
    Question all_without = all, few_without = few;
    const Scorer& scorer = patient_.scorer();
    std::vector<Scores> as_they_are, without;
    if (kind == CauseKind::ActivationChannelImbalance) {
      std::vector<int64_t> ids = cause.quantizers;
      std::ranges::sort(ids);
      as_they_are = patient_.ask(key, patient_.quantized(), all, std::vector<Question>{all, few}, 0, count_);
      without = patient_.ask("without " + key, counterfactuals_.by_channel(ids), all, std::vector<Question>{all, few},
                             0, count_);
    } else {
      for (const Guilty& one : members) {
        counterfactuals_.apply(kind, one.id, all_without);
        counterfactuals_.apply(kind, one.id, few_without);
      }
      const std::vector<Scores> scores = patient_.ask(
          key, patient_.quantized(), all, std::vector<Question>{all, few, all_without, few_without}, 0, count_);
      as_they_are = {scores[0], scores[1]};
      without = {scores[2], scores[3]};
    }
    const double total = scorer.mean_harm(as_they_are[0]);
    const double left_out = total - scorer.mean_harm(without[0]);
    const double brought_in = scorer.mean_harm(as_they_are[1]) - scorer.mean_harm(without[1]);
    if (total > 0) cause.share = std::clamp((left_out + brought_in) / 2 / total, 0.0, 1.0);
    cause.evidence = {{"harm", total},
                      {"harm_without", scorer.mean_harm(without[0])},
                      {"harm_of_these_alone", scorer.mean_harm(as_they_are[1])},
                      {"metric", scorer.value(as_they_are[0])},
                      {"metric_without", scorer.value(without[0])}};
    describe(cause);
    return cause;
  }

  void describe(Cause& cause) {
    const int64_t id = cause.quantizers.front();
    const Quantizer& own = quantizer(id);
    std::string seen;
    if (own.kind == Slot::Weight) {
      const WeightFacts facts = weight_facts(own);
      cause.evidence.insert(
          cause.evidence.end(),
          {{"channel_imbalance", facts.imbalance}, {"sqnr_db", facts.sqnr_db}, {"kurtosis", facts.kurtosis}});
      seen = fmt::format("its largest channel is {:.3g} times the median one, a typical channel keeps {:.1f} dB",
                         facts.imbalance, facts.sqnr_db);
    } else if (!own.params.scale.empty()) {
      const Range range = own.observed;
      const Range there = counterfactuals_.on_data().quantizers[static_cast<size_t>(id)].observed;
      cause.evidence.insert(cause.evidence.end(), {{"calibrated_min", range.min},
                                                   {"calibrated_max", range.max},
                                                   {"evaluation_min", there.min},
                                                   {"evaluation_max", there.max}});
      seen = fmt::format("calibration saw [{:.4g}, {:.4g}], evaluation brings [{:.4g}, {:.4g}]", range.min, range.max,
                         there.min, there.max);
    }
    cause.text = fmt::format("{}: {} of {}{}{}. With {}{}, {:.0f} % of the harm goes.", meaning(cause.kind),
                             name_of(own.serves.front().slot), own.serves.front().layer,
                             cause.layers.size() > 1 ? fmt::format(" and {} more", cause.layers.size() - 1) : "",
                             seen.empty() ? "" : "; " + seen, cause.confirmed_by,
                             cause.layers.size() > 1 ? " in all of them" : "", 100 * cause.share);
  }

  static const char* meaning(CauseKind kind) {
    switch (kind) {
      case CauseKind::CalibrationMismatch: return "Evaluation brings other values than calibration did";
      case CauseKind::WeightChannelImbalance: return "One scale serves channels of very different size";
      case CauseKind::WeightOutliers: return "Few weights stretch the range of the rest";
      case CauseKind::WeightResolution: return "Even the best range leaves too few steps";
      case CauseKind::BiasShift: return "Rounding errors have a sign and add up";
      case CauseKind::ActivationOutliers: return "Rare large values stretch the range";
      case CauseKind::ActivationChannelImbalance: return "Some channels are far larger than the rest";
      case CauseKind::ActivationResolution: return "A wide, even range with too few steps";
      case CauseKind::Overflow: return "Values lie beyond the largest number of the format";
      default: return "The error is small here, and yet the output suffers";
    }
  }

  Patient& patient_;
  Counterfactuals& counterfactuals_;
  const std::vector<Sensitivity>& rows_;
  int64_t count_;
  std::vector<Guilty> guilty_;
};

}  // namespace

CauseResult find_causes(Patient& patient, Counterfactuals& counterfactuals,
                        const std::vector<Sensitivity>& sensitivity) {
  CauseResult result;
  const Stopwatch watch;
  const double before = patient.forwards();
  result.causes = Examination(patient, counterfactuals, sensitivity).run();
  result.step = {.number = 6, .name = "causes"};
  for (const Cause& cause : result.causes) {
    result.step.numbers.emplace_back(std::string(enum_name(cause.kind)), cause.share);
    if (!result.step.finding.empty()) result.step.finding += ", ";
    result.step.finding += fmt::format("{} {:.0f} %", enum_name(cause.kind), 100 * cause.share);
  }
  if (result.causes.empty()) {
    result.step.finding = patient.ran_out_of_time() ? "time ran out" : "no quantizer stands out";
  }
  result.step.seconds = watch.seconds();
  result.step.forwards = patient.forwards() - before;
  return result;
}

}  // namespace kaon
