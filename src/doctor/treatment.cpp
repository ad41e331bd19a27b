#include "doctor/treatment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "doctor/search.h"

namespace kaon {
namespace {

constexpr const char* kTooLittle = "no better beyond noise";
constexpr const char* kHardly = "hardly better";
constexpr double kLeastGain = 0.02;   ///< of the harm that is there
constexpr int64_t kMostNeeded = 6;    ///< upgrades that prove needed before no more are looked at again
constexpr int64_t kMostBeyond = 3;    ///< sets with more bytes than needed
constexpr double kWorthTrying = 0.9;  ///< of the harm of the set before: more than that is no step
constexpr double kFewBytes = 0.01;    ///< of the model: what is not worth one more changed quantizer

class Course {
 public:
  Course(Patient& patient, const std::vector<Cause>& causes, const Scores& exact)
      : patient_(patient), causes_(causes), exact_(exact) {
    result_.prescription = patient.as_brought_in();
    now_ = &patient_.try_out(result_.prescription);
    remember("as it was brought in", result_.prescription, *now_);
  }

  TreatmentResult run() {
    for (const Tier tier : {Tier::Same, Tier::Granularity, Tier::Bits, Tier::Float}) {
      if (!patient_.options().allow.contains(tier) || met(*now_)) continue;
      const Stopwatch watch;
      const double before = patient_.forwards();
      const double value = patient_.scorer().value(now_->scores);
      const size_t tried = result_.tried.size();
      if (tier == Tier::Same || tier == Tier::Granularity) {
        try_menu(tier);
      } else {
        widen(tier);
      }
      if (result_.tried.size() == tried && patient_.ran_out_of_time()) continue;
      note_step(tier, value, watch.seconds(), patient_.forwards() - before);
    }
    try_again();
    prune();
    for (const Treatment& treatment : kept_) result_.changes.push_back(in_words(treatment));
    result_.target_met = met(*now_);
    make_front();
    return std::move(result_);
  }

 private:
  const Scorer& scorer() const { return patient_.scorer(); }

  bool met(const Outcome& outcome) const {
    const MetricFacts& facts = scorer().facts();
    const double most = patient_.options().max_drop + 1e-9;
    const double drop = facts.badness(scorer().value(outcome.scores)) - facts.badness(scorer().value(exact_));
    const int64_t from = patient_.chosen();
    const double held_out =
        facts.badness(scorer().value(outcome.scores, from)) - facts.badness(scorer().value(exact_, from));
    const Estimate noise = scorer().metric_difference(outcome.scores, exact_, from);
    return drop <= most && held_out <= most + 2 * noise.error;
  }

  /// Whether `after` is better than `before` on the samples to confirm by; else why not. What reaches the target need
  /// not take harm away, if it does none beyond noise.
  std::string objection(const Outcome& before, const Outcome& after) const {
    const int64_t from = patient_.chosen();
    const Estimate gone = scorer().harm_difference(before.scores, after.scores, from);
    const bool enough = met(after) && !met(before) && gone.mean >= -2 * gone.error;
    if (!gone.positive() && !enough) return gone.mean < 0 ? "does harm" : kTooLittle;
    if (gone.mean < kLeastGain * scorer().mean_harm(before.scores, from) && !enough) return kHardly;
    if (scorer().metric_difference(after.scores, before.scores, from).positive()) return "the metric is worse";
    return "";
  }

  Prescription with(const std::vector<Treatment>& treatments) const {
    Prescription prescription = patient_.as_brought_in();
    for (const Treatment& treatment : treatments) {
      prescription.as_brought = false;
      treatment.apply(prescription);
    }
    return prescription;
  }

  Trial trial_of(const Treatment& treatment, const Outcome& before, const Outcome& after) const {
    Trial trial;
    trial.cure = treatment.name;
    trial.tier = treatment.tier;
    trial.layers = treatment.layers;
    trial.before = scorer().value(before.scores);
    trial.harm_before = scorer().mean_harm(before.scores, patient_.chosen());
    trial.seconds = after.seconds;
    if (!after.error.empty()) {
      trial.after = trial.before;
      trial.harm_after = trial.harm_before;
      trial.bytes = before.bytes;
      trial.note = after.error;
      return trial;
    }
    trial.after = scorer().value(after.scores);
    trial.harm_after = scorer().mean_harm(after.scores, patient_.chosen());
    trial.bytes = after.bytes;
    return trial;
  }

  /// What was kept and `treatment`, which goes before all of a dearer kind: those say what they change to the last.
  std::vector<Treatment> kept_and(const Treatment& treatment) const {
    std::vector<Treatment> all = kept_;
    all.insert(std::ranges::find_if(all, [&](const Treatment& one) { return one.tier > treatment.tier; }), treatment);
    return all;
  }

  /// Tries `treatment` on top of what was kept; keeps it where it helps.
  bool attempt(const Treatment& treatment) {
    std::vector<Treatment> all = kept_and(treatment);
    const Prescription prescription = with(all);
    if (prescription == result_.prescription || !patient_.may_try(prescription)) return false;
    patient_.options().progress->begin(
        fmt::format("trying {} (best so far: {:.4g})", treatment.name, scorer().value(now_->scores)), 1);
    patient_.options().progress->end();
    const Outcome& after = patient_.try_out(prescription);
    Trial trial = trial_of(treatment, *now_, after);
    if (after.error.empty()) {
      remember(in_words(treatment), prescription, after);
      trial.note = objection(*now_, after);
      trial.kept = trial.note.empty();
    }
    result_.tried.push_back(trial);
    if (trial.note == kTooLittle || trial.note == kHardly) hidden_.push_back(treatment);
    if (!trial.kept) return false;
    kept_ = std::move(all);
    now_ = &after;
    result_.prescription = prescription;
    return true;
  }

  void try_menu(Tier tier) {
    for (const Treatment& treatment : treatments_for(patient_, causes_, tier)) {
      if (met(*now_)) return;
      attempt(treatment);
    }
  }

  Treatment upgrade_to(const std::vector<Upgrade>& upgrades, const QuantizedModel& quantized, Tier tier) const {
    Treatment treatment;
    treatment.tier = tier;
    std::vector<std::pair<Quantizer, SlotRule>> rules;
    for (const Upgrade& upgrade : upgrades) {
      Quantizer own = quantized.quantizers[static_cast<size_t>(upgrade.id)];
      own.params = {};
      rules.emplace_back(std::move(own), upgrade.rule);
      treatment.layers.push_back(upgrade.layer);
    }
    treatment.name = fmt::format("{} for {} of {} quantizers", tier == Tier::Bits ? "more bits" : "float",
                                 upgrades.size(), quantized.quantizers.size());
    treatment.apply = [rules](Prescription& prescription) {
      for (const auto& [quantizer, rule] : rules) set_rule(prescription.config, quantizer, rule);
    };
    return treatment;
  }

  /// What brought little beside larger errors may bring much once more bits have taken those away.
  void try_again() {
    const bool widened = std::ranges::any_of(kept_, [](const Treatment& one) { return one.tier >= Tier::Bits; });
    if (!widened) return;
    const std::vector<Treatment> again = std::move(hidden_);
    for (const Treatment& treatment : again) {
      if (met(*now_)) return;
      attempt(treatment);
    }
  }

  /// Some upgrades as they were measured.
  struct Widened {
    std::vector<Upgrade> upgrades;
    Prescription prescription;
    const Outcome* outcome = nullptr;
    size_t trial = 0;
    size_t order = 0;  ///< the first of this order of the plan
  };

  /// Whether `a` is to be preferred to `b`: the target, then bytes, then few changes; without the target, little harm.
  bool preferred(const Widened& a, const Widened& b) const {
    const bool target = met(*a.outcome);
    if (target != met(*b.outcome)) return target;
    const auto bytes = static_cast<double>(a.outcome->bytes - b.outcome->bytes);
    const double few = kFewBytes * static_cast<double>(b.outcome->bytes);
    if (!target) {
      const double left = scorer().mean_harm(a.outcome->scores) / (bytes > few ? kWorthTrying : 1);
      return left < scorer().mean_harm(b.outcome->scores);
    }
    if (std::fabs(bytes) > few) return bytes < 0;
    if (a.upgrades.size() != b.upgrades.size()) return a.upgrades.size() < b.upgrades.size();
    return bytes < 0;
  }

  /// More bits, or none at all, where they pay: sets of upgrades from small ones on until one meets the target, those
  /// that may do so with fewer bytes, then what lies between the best one and the one before it in its order, then the
  /// best one without its least.
  void widen(Tier tier) {
    const std::string key = key_of(result_.prescription);
    if (!may_plan_upgrades(patient_, key, tier)) return;
    const QuantizedModel quantized = patient_.quantize_as(result_.prescription);
    const UpgradePlan plan = plan_upgrades(patient_, quantized, key, tier);
    const Outcome* start = now_;
    std::optional<Widened> best;
    std::map<size_t, int64_t> too_few;  // by order: the largest number that did not do
    std::vector<Prescription> known;
    const auto consider = [&](std::vector<Upgrade> upgrades, size_t order) {
      Widened one;
      std::vector<Treatment> treatments = kept_;
      treatments.push_back(upgrade_to(upgrades, quantized, tier));
      one.upgrades = std::move(upgrades);
      one.prescription = with(treatments);
      if (std::ranges::find(known, one.prescription) != known.end()) {
        const Outcome& before = patient_.try_out(one.prescription);
        return before.error.empty() && met(before);
      }
      if (!patient_.may_try(one.prescription)) return false;
      known.push_back(one.prescription);
      one.outcome = &patient_.try_out(one.prescription);
      one.trial = result_.tried.size();
      one.order = order;
      Trial trial = trial_of(treatments.back(), *start, *one.outcome);
      if (trial.note.empty()) trial.note = met(*one.outcome) ? "others do with less" : "not enough";
      result_.tried.push_back(std::move(trial));
      if (!one.outcome->error.empty()) return false;
      remember(treatments.back().name, one.prescription, *one.outcome);
      if (!best || preferred(one, *best)) best = one;
      return met(*one.outcome);
    };
    double harm = std::numeric_limits<double>::infinity();
    for (const UpgradeSet& set : plan.sets) {
      const bool found = best && met(*best->outcome);
      const bool last = &set == &plan.sets.back();
      if (found ? set.stored >= stored(best->upgrades) * (1 - kFewBytes) : set.harm > kWorthTrying * harm && !last) {
        continue;
      }
      if (!found) harm = set.harm;
      if (!consider(set.upgrades, set.order)) too_few[set.order] = std::ssize(set.upgrades);
    }
    if (best && met(*best->outcome)) {
      const size_t order = best->order;
      const std::vector<Upgrade>& all = plan.orders[order];
      int64_t low = too_few[order], high = std::ssize(best->upgrades);
      while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        (consider({all.begin(), all.begin() + middle}, order) ? high : low) = middle;
      }
      leave_out_least(best->upgrades, best, consider);
      look_beyond(plan, *best, consider);
    }
    if (!best) return;
    Trial& chosen = result_.tried[best->trial];
    chosen.note = met(*best->outcome) ? "" : objection(*start, *best->outcome);
    chosen.kept = chosen.note.empty();
    if (!chosen.kept) return;
    kept_.push_back(upgrade_to(best->upgrades, quantized, tier));
    now_ = best->outcome;
    result_.prescription = best->prescription;
  }

  /// Those that bring least may not be needed once the others are there; what costs bytes goes first, the least for its
  /// bytes before all. As long as that does, twice as many go at once.
  template <typename Consider>
  void leave_out_least(std::vector<Upgrade> candidates, const std::optional<Widened>& best, Consider&& consider) {
    std::ranges::stable_sort(candidates, [](const Upgrade& a, const Upgrade& b) {
      const bool a_free = a.stored == 0, b_free = b.stored == 0;
      if (a_free != b_free) return b_free;
      return a_free ? a.benefit < b.benefit : a.benefit * b.stored < b.benefit * a.stored;
    });
    int64_t step = 1, needed = 0;
    for (int64_t at = 0; at < std::ssize(candidates) && needed < kMostNeeded;) {
      const int64_t count = std::min({step, std::ssize(candidates) - at, std::ssize(best->upgrades) - 1});
      if (count < 1) return;
      const auto gone = std::span(candidates).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
      std::vector<Upgrade> fewer = best->upgrades;
      std::erase_if(fewer,
                    [&](const Upgrade& one) { return std::ranges::find(gone, one.id, &Upgrade::id) != gone.end(); });
      const bool enough = consider(std::move(fewer), best->order);
      if (!enough) ++needed;
      if (enough || count == 1) at += count;
      step = enough ? 2 * count : std::max<int64_t>(1, count / 2);
    }
  }

  /// What more bytes than the target needs would bring: the sets that promise most for their size, for the front.
  template <typename Consider>
  void look_beyond(const UpgradePlan& plan, const Widened& best, Consider&& consider) {
    const double from = stored(best.upgrades) + kFewBytes * static_cast<double>(best.outcome->bytes);
    std::vector<const UpgradeSet*> dearer;
    for (const UpgradeSet& set : plan.sets) {
      const bool known = !dearer.empty() && set.harm > kWorthTrying * dearer.back()->harm;
      if (set.stored > from && !known) dearer.push_back(&set);
    }
    const int64_t count = std::min(kMostBeyond, std::ssize(dearer));
    for (int64_t i = 0; i < count; ++i) {
      const UpgradeSet& set = *dearer[static_cast<size_t>(i * std::ssize(dearer) / count)];
      consider(set.upgrades, set.order);
    }
  }

  static double stored(const std::vector<Upgrade>& upgrades) {
    double sum = 0;
    for (const Upgrade& upgrade : upgrades) sum += upgrade.stored;
    return sum;
  }

  /// Takes out what is no longer needed: the target stays met, or nothing gets worse beyond noise.
  void prune() {
    const bool target = met(*now_);
    for (size_t i = kept_.size(); i-- > 0 && kept_.size() > 1;) {
      std::vector<Treatment> fewer = kept_;
      fewer.erase(fewer.begin() + static_cast<int64_t>(i));
      const Prescription prescription = with(fewer);
      if (prescription == result_.prescription) {  // a later one stands in its place
        kept_ = std::move(fewer);
        continue;
      }
      if (!patient_.may_try(prescription)) continue;
      const Outcome& outcome = patient_.try_out(prescription);
      if (!outcome.error.empty()) continue;
      remember("without " + in_words(kept_[i]), prescription, outcome);
      const bool worse = scorer().harm_difference(outcome.scores, now_->scores, patient_.chosen()).positive();
      if (target ? !met(outcome) : worse) continue;
      Trial trial = trial_of(kept_[i], *now_, outcome);
      trial.cure = "without " + trial.cure;
      trial.kept = true;
      trial.note = "not needed";
      result_.tried.push_back(trial);
      kept_ = std::move(fewer);
      now_ = &outcome;
      result_.prescription = prescription;
    }
  }

  static std::string in_words(const Treatment& treatment) {
    if (treatment.layers.empty()) return treatment.name;
    constexpr size_t kNamed = 8;
    std::string text = treatment.name + ": ";
    for (size_t i = 0; i < std::min(treatment.layers.size(), kNamed); ++i)
      text += (i == 0 ? "" : ", ") + treatment.layers[i];
    if (treatment.layers.size() > kNamed) text += fmt::format(" and {} more", treatment.layers.size() - kNamed);
    return text;
  }

  void note_step(Tier tier, double before, double seconds, double forwards) {
    DoctorStep step;
    step.number = tier == Tier::Same ? 3 : tier == Tier::Granularity ? 4 : 7;
    step.name = tier == Tier::Same          ? "cures of the same size"
                : tier == Tier::Granularity ? "finer scales"
                : tier == Tier::Bits        ? "more bits"
                                            : "float";
    const double after = scorer().value(now_->scores);
    step.finding =
        before == after ? "nothing helped" : fmt::format("{} {:.4g} -> {:.4g}", scorer().facts().name, before, after);
    step.numbers = {{"before", before}, {"after", after}, {"bytes", static_cast<double>(now_->bytes)}};
    step.seconds = seconds;
    step.forwards = forwards;
    result_.steps.push_back(std::move(step));
  }

  void remember(const std::string& name, const Prescription& prescription, const Outcome& outcome) {
    points_.push_back({outcome.bytes, scorer().value(outcome.scores), name, prescription.config});
  }

  void make_front() {
    const MetricFacts& facts = scorer().facts();
    for (const FrontPoint& point : points_) {
      const bool beaten = std::ranges::any_of(points_, [&](const FrontPoint& other) {
        const double mine = facts.badness(point.metric), its = facts.badness(other.metric);
        return other.bytes <= point.bytes && its <= mine && (other.bytes < point.bytes || its < mine);
      });
      const bool known = std::ranges::any_of(result_.front, [&](const FrontPoint& other) {
        return other.bytes == point.bytes && other.metric == point.metric;
      });
      if (!beaten && !known) result_.front.push_back(point);
    }
    std::ranges::stable_sort(result_.front, [](const FrontPoint& a, const FrontPoint& b) { return a.bytes < b.bytes; });
  }

  Patient& patient_;
  const std::vector<Cause>& causes_;
  const Scores& exact_;
  TreatmentResult result_;
  std::vector<Treatment> kept_;
  std::vector<Treatment> hidden_;  ///< brought too little to be seen
  const Outcome* now_ = nullptr;
  std::vector<FrontPoint> points_;
};

}  // namespace

TreatmentResult treat(Patient& patient, const std::vector<Cause>& causes, const Scores& exact) {
  return Course(patient, causes, exact).run();
}

}  // namespace kaon
