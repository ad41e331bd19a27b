// The doctor on patients whose disease is known. KAON_CLINIC_SEEDS=FIRST:LAST takes other seeds than the usual few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>

#include "base/error.h"
#include "doctor/doctor.h"
#include "engine/engine.h"
#include "export/export.h"
#include "patients.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace kaon::clinic {
namespace {

/// How many of them went well.
struct Score {
  int64_t patients = 0;
  int64_t cause = 0, with_cause = 0;
  int64_t layer = 0, with_layer = 0;
  int64_t restored = 0, curable = 0;
  int64_t healthy = 0, false_alarms = 0;
};

bool among_first(const Cause& cause, const std::vector<std::string>& wanted) {
  const auto shown = std::span(cause.layers).first(std::min(cause.layers.size(), wanted.size()));
  return std::ranges::any_of(
      shown, [&](const std::string& layer) { return std::ranges::find(wanted, layer) != wanted.end(); });
}

void examine(const std::string& disease, uint64_t seed, Score& score) {
  const Patient patient = make_patient(disease, seed);
  DoctorOptions options;
  options.max_drop = 0.02;
  const Diagnosis found = diagnose(patient.model, patient.config, *patient.data, patient.calibration.get(), options);
  ++score.patients;
  std::string line = fmt::format("{}: {} {:.3f} -> {:.3f} -> {:.3f}", patient.name, enum_name(found.verdict),
                                 found.exact, found.quantized, found.cured);
  for (const Cause& cause : found.causes) {
    line += fmt::format(", {} {:.0f} %", enum_name(cause.kind), 100 * cause.share);
    if (!cause.layers.empty())
      line += fmt::format(" ({} {})", cause.layers[0], cause.slots.empty() ? "" : name_of(cause.slots[0]));
  }
  for (const std::string& change : found.cure.changes) line += "; " + change;
  if (patient.causes.empty()) {
    ++score.healthy;
    const bool alarm = found.verdict != Verdict::Healthy || !found.causes.empty();
    if (alarm) ++score.false_alarms;
    std::cout << (alarm ? "FALSE ALARM " : "ok ") << line << '\n';
    return;
  }
  // A disease that this model takes without harm is no patient.
  if (found.verdict == Verdict::Healthy) {
    std::cout << "harmless " << line << '\n';
    return;
  }
  ++score.with_cause;
  const bool cause =
      !found.causes.empty() && std::ranges::find(patient.causes, found.causes[0].kind) != patient.causes.end();
  if (cause) ++score.cause;
  bool layer = true;
  if (!patient.layers.empty()) {
    ++score.with_layer;
    layer = !found.causes.empty() && among_first(found.causes[0], patient.layers);
    if (layer) ++score.layer;
  }
  bool restored = true;
  if (patient.verdict == Verdict::Cured) {
    ++score.curable;
    restored = found.recovered >= 0.9 || found.verdict == Verdict::Cured;
    if (restored) ++score.restored;
  }
  for (const Trial& trial : found.tried) {
    if (!restored)
      line += fmt::format("\n    tried {}: {:.3f} -> {:.3f} {}", trial.cure, trial.before, trial.after, trial.note);
  }
  std::cout << (cause ? "ok " : "WRONG CAUSE ") << (layer ? "" : "WRONG LAYER ") << (restored ? "" : "NOT RESTORED ")
            << line << '\n';
}

TEST(Clinic, NamesTheDiseaseAndRestoresWhatWasLost) {
  uint64_t first = 1, last = 1;
  if (const char* seeds = std::getenv("KAON_CLINIC_SEEDS")) {
    const std::string text = seeds;
    first = std::stoull(text);
    last = text.find(':') == std::string::npos ? first : std::stoull(text.substr(text.find(':') + 1));
  }
  Score score;
  for (const std::string& disease : diseases()) {
    for (uint64_t seed = first; seed <= last; ++seed) examine(disease, seed, score);
  }
  std::cout << fmt::format("{} patients: cause {}/{}, layer {}/{}, restored {}/{}, false alarms {}/{}\n",
                           score.patients, score.cause, score.with_cause, score.layer, score.with_layer, score.restored,
                           score.curable, score.false_alarms, score.healthy);
  EXPECT_GE(score.cause, 0.95 * static_cast<double>(score.with_cause));
  EXPECT_GE(score.layer, 0.9 * static_cast<double>(score.with_layer));
  EXPECT_GE(score.restored, 0.9 * static_cast<double>(score.curable));
  EXPECT_GE(score.with_cause, score.patients * 2 / 3);
  EXPECT_EQ(score.false_alarms, 0);
}

/// Ends the run at its n-th word, as a signal would.
class Interruption : public Progress {
 public:
  explicit Interruption(int64_t left) : left_(left) {}
  void begin(const std::string&, int64_t) override {
    if (left_-- == 0) throw std::runtime_error("interrupted");
  }
  int64_t left() const { return left_; }

 private:
  int64_t left_;
};

/// All that is found, without times.
std::string findings(const Diagnosis& found) {
  std::string text = fmt::format("{} {} {} {} {} {}", enum_name(found.verdict), found.exact, found.quantized,
                                 found.cured, found.forwards, found.cure.bytes);
  for (const Step& step : found.steps) text += fmt::format("\n{} {} {}", step.number, step.finding, step.forwards);
  for (const Cause& cause : found.causes) text += fmt::format("\n{} {}", cause.text, cause.share);
  for (const Sensitivity& row : found.sensitivity)
    text += fmt::format("\n{} {} {} {}", row.id, row.share, row.low, row.high);
  for (const Trial& trial : found.tried)
    text += fmt::format("\n{} {} {} {}", trial.cure, trial.after, trial.kept, trial.note);
  for (const FrontPoint& point : found.front) text += fmt::format("\n{} {} {}", point.bytes, point.metric, point.name);
  return text;
}

TEST(Clinic, ARunThatWasInterruptedEndsLikeOneThatWasNot) {
  const Patient patient = make_patient("channels rescaled", 1);
  const auto path = std::filesystem::path(::testing::TempDir()) / "kaon_clinic_journal";
  std::filesystem::remove(path);
  DoctorOptions options;
  options.max_drop = 0.02;
  const auto run = [&] {
    return diagnose(patient.model, patient.config, *patient.data, patient.calibration.get(), options);
  };
  Interruption never(1 << 20);
  options.progress = &never;
  const std::string expected = findings(run());
  const int64_t words = (1 << 20) - never.left();
  options.journal = path;
  options.subject = "patient";
  int64_t interrupted = 0;
  for (const int64_t part : {1, 2, 3, 4, 5, 6, 7}) {
    Interruption progress(words * part / 8);
    options.progress = &progress;
    options.resume = part > 1;
    try {
      EXPECT_EQ(findings(run()), expected);
    } catch (const std::runtime_error&) {
      ++interrupted;
    }
  }
  EXPECT_GE(interrupted, 3);
  options.resume = true;
  options.progress = &no_progress();
  EXPECT_EQ(findings(run()), expected);
}

TEST(Clinic, ReadsTheQuantizersOfAFile) {
  const Patient patient = make_patient("healthy", 1);
  const QuantizedModel made = quantize(patient.model, patient.config, patient.calibration.get());
  const Model file = export_onnx(made).model;
  const std::optional<QuantizedModel> read = read_quantizers(file);
  ASSERT_TRUE(read);
  const TensorMap inputs = patient.data->read(0, 32).inputs;
  // With them on it computes what the file does, with them off what the float model does with rounded weights.
  const std::vector<float> expected = Engine(file).run(inputs)[0].to_float();
  EXPECT_EQ(Engine(simulate(*read)).run(inputs)[0].to_float(), expected);
  QuantizedModel weights = made;
  for (Quantizer& one : weights.quantizers) one.enabled = !one.is_activation();
  const std::vector<float> exact = Engine(simulate(weights)).run(inputs)[0].to_float();
  const std::vector<float> found = Engine(read->original).run(inputs)[0].to_float();
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(found[i], exact[i], 1e-3);
  EXPECT_FALSE(read_quantizers(patient.model));
  const Diagnosis diagnosis = diagnose(*read, *patient.data, patient.calibration.get());
  EXPECT_EQ(enum_name(diagnosis.verdict), "healthy");
}

TEST(Clinic, BadInputIsSaidClearly) {
  const Patient patient = make_patient("healthy", 1);
  const auto message_of = [&](const Model& model, const Config& config, const Dataset& data,
                              DoctorOptions options = {}) {
    try {
      diagnose(model, config, data, patient.calibration.get(), options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message_of(patient.model, patient.config, Images(1, 1, 1)).find("two batches"), std::string::npos);
  Config nothing = patient.config;
  nothing.exclude = {"*"};
  EXPECT_NE(message_of(patient.model, nothing, *patient.data).find("no layer"), std::string::npos);
  Model broken = patient.model;
  for (Initializer& one : broken.graph.initializers) {
    if (one.name != "conv2.weight") continue;
    std::vector<float> values = one.tensor.to_float();
    values[7] = NAN;
    one.tensor = Tensor::of(one.tensor.shape(), values);
  }
  EXPECT_NE(message_of(broken, patient.config, *patient.data).find("conv2.weight"), std::string::npos);
}

}  // namespace
}  // namespace kaon::clinic
