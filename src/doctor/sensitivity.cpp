#include "doctor/sensitivity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kaon {
namespace {

constexpr int64_t kGlance = 8;
constexpr int64_t kFirstRound = 32;
constexpr int64_t kSecondRound = 128;
constexpr size_t kChunk = 32;     ///< quantizers between two looks at the clock
constexpr size_t kInDoubt = 16;   ///< quantizers that the order matters for
constexpr double kSmall = 0.005;  ///< a share of the harm that nobody minds

void append(Scores& to, const Scores& more) {
  if (to.size() == 0) to.first = more.first;
  to.metric.insert(to.metric.end(), more.metric.begin(), more.metric.end());
  to.kl.insert(to.kl.end(), more.kl.begin(), more.kl.end());
  to.noise.insert(to.noise.end(), more.noise.begin(), more.noise.end());
  to.non_finite += more.non_finite;
}

/// One quantizer while it is measured.
struct Measured {
  int64_t id = 0;
  Scores alone;
  Scores without;
};

class Ranking {
 public:
  explicit Ranking(Patient& patient) : patient_(patient), scorer_(patient.scorer()) {
    for (const Quantizer& quantizer : patient.quantized().quantizers) {
      if (quantizer.enabled && quantizer.kind != Slot::Bias) order_.push_back(quantizer.id);
    }
  }

  std::vector<Sensitivity> run() {
    glance();
    for (size_t begin = 0; begin < order_.size(); begin += kChunk) {
      const size_t end = std::min(begin + kChunk, order_.size());
      std::vector<int64_t> ids(order_.begin() + static_cast<int64_t>(begin),
                               order_.begin() + static_cast<int64_t>(end));
      measure(ids, 0, patient_.first_samples(kFirstRound).size());
    }
    refine();
    return rows();
  }

 private:
  Question with(const Question& base, int64_t id, bool on) const {
    Question question = base;
    question.on[static_cast<size_t>(id)] = on;
    return question;
  }

  void glance() {
    std::vector<Question> questions;
    for (const int64_t id : order_) questions.push_back(with(patient_.all_off(), id, true));
    const int64_t count = patient_.first_samples(kGlance).size();
    const std::vector<Scores> scores =
        patient_.ask("glance", patient_.quantized(), patient_.all_off(), questions, 0, count);
    std::vector<size_t> places(order_.size());
    std::iota(places.begin(), places.end(), 0);
    std::vector<double> harm;
    for (const Scores& one : scores) harm.push_back(scorer_.mean_harm(one));
    std::stable_sort(places.begin(), places.end(), [&](size_t a, size_t b) { return harm[a] > harm[b]; });
    std::vector<int64_t> ordered;
    for (const size_t place : places) ordered.push_back(order_[place]);
    order_ = std::move(ordered);
  }

  void measure(const std::vector<int64_t>& ids, int64_t first, int64_t count) {
    if (ids.empty() || count <= 0) return;
    std::string key = "switch";
    for (const int64_t id : ids) key += fmt::format(" {}", id);
    const std::string on = "on " + key, off = "off " + key;
    if (!patient_.may_ask(on, first, count) || !patient_.may_ask(off, first, count)) return;
    for (const bool alone : {true, false}) {
      const Question base = alone ? patient_.all_off() : patient_.as_it_is();
      std::vector<Question> questions{base};
      for (const int64_t id : ids) questions.push_back(with(base, id, alone));
      const std::vector<Scores> scores =
          patient_.ask(alone ? on : off, patient_.quantized(), base, questions, first, count);
      // Everybody's first samples are the same, so what is there already is not added twice.
      if (!alone && all_.size() == first) append(all_, scores[0]);
      for (size_t i = 0; i < ids.size(); ++i) {
        Measured& measured = measured_[ids[i]];
        measured.id = ids[i];
        append(alone ? measured.alone : measured.without, scores[i + 1]);
      }
    }
  }

  /// More samples for those at the top whose neighbours are within their error.
  void refine() {
    const int64_t had = patient_.first_samples(kFirstRound).size();
    const int64_t more = patient_.first_samples(kSecondRound).size() - had;
    if (more <= 0) return;
    const std::vector<Sensitivity> sofar = rows();
    std::vector<int64_t> doubtful;
    for (size_t i = 0; i < std::min(sofar.size(), kInDoubt); ++i) {
      if (sofar[i].share < kSmall) break;
      const bool touches =
          (i + 1 < sofar.size() && sofar[i + 1].high > sofar[i].low) || (i > 0 && sofar[i - 1].low < sofar[i].high);
      if (touches) doubtful.push_back(sofar[i].id);
    }
    measure(doubtful, had, more);
  }

  std::vector<Sensitivity> rows() const {
    std::vector<Sensitivity> rows;
    double alone_sum = 0, gain_sum = 0;
    for (const auto& [id, measured] : measured_) {
      const Quantizer& quantizer = patient_.quantized().quantizers[static_cast<size_t>(id)];
      Sensitivity row;
      row.id = id;
      row.layer = quantizer.serves.front().layer;
      row.slot = quantizer.serves.front().slot;
      row.tensor = quantizer.tensor;
      row.format = quantizer.spec.format;
      row.samples = measured.alone.size();
      row.only_this = scorer_.value(measured.alone);
      row.without_this = scorer_.value(measured.without);
      const int64_t count = measured.without.size();
      const double all = scorer_.mean_harm(all_, 0, count);
      const Estimate gain = scorer_.harm_difference(all_, measured.without, 0, count);
      row.gain = all > 0 ? gain.mean / all : 0;
      const double spread = all > 0 ? 1.96 * gain.error / all : 0;
      row.low = row.gain - spread;
      row.high = row.gain + spread;
      row.alone = scorer_.mean_harm(measured.alone);
      row.kl = scorer_.mean_kl(measured.alone);
      row.sqnr_db = scorer_.sqnr_db(measured.alone);
      alone_sum += row.alone;
      gain_sum += std::max(row.gain, 0.0);
      rows.push_back(row);
    }
    // What it costs alone and what it costs among the others; the first says more where all is lost anyway, the
    // second where errors add up.
    for (Sensitivity& row : rows) {
      const double alone = alone_sum > 0 ? row.alone / alone_sum : 0;
      const double gain = gain_sum > 0 ? std::max(row.gain, 0.0) / gain_sum : 0;
      row.share = (alone + gain) / 2;
    }
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
    return rows;
  }

  Patient& patient_;
  const Scorer& scorer_;
  std::vector<int64_t> order_;
  Scores all_;  ///< of everything as it is, on the samples that any quantizer was measured on
  std::map<int64_t, Measured> measured_;
};

}  // namespace

SensitivityResult measure_sensitivity(Patient& patient) {
  SensitivityResult result;
  const Stopwatch watch;
  const double before = patient.forwards();
  result.rows = Ranking(patient).run();
  result.step = {.number = 5, .name = "per quantizer"};
  result.step.numbers = {{"quantizers", static_cast<double>(result.rows.size())}};
  result.step.finding = result.rows.empty() ? "no quantizer was measured" : "";
  double sum = 0;
  for (size_t i = 0; i < result.rows.size() && i < 3; ++i) {
    const Sensitivity& row = result.rows[i];
    result.step.finding +=
        fmt::format("{}{} {} ({:.0f} %)", i == 0 ? "" : ", ", row.layer, name_of(row.slot), 100 * row.share);
    sum += row.share;
  }
  if (!result.rows.empty()) result.step.finding += fmt::format(" hold {:.0f} % of the harm", 100 * sum);
  result.step.seconds = watch.seconds();
  result.step.forwards = patient.forwards() - before;
  return result;
}

}  // namespace kaon
