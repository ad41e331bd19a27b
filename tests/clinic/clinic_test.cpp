// The doctor on patients whose disease is known. KAON_CLINIC_SEEDS=FIRST:LAST takes other seeds than the usual few.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <tuple>

#include "base/error.h"
#include "doctor/doctor.h"
#include "engine/engine.h"
#include "examine.h"
#include "export/export.h"
#include "patients.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace kaon::clinic {
namespace {

TEST(Clinic, NamesTheDiseaseAndRestoresWhatWasLost) {
  uint64_t first = 1, last = 1;
  if (const char* seeds = std::getenv("KAON_CLINIC_SEEDS")) {
    const std::string text = seeds;
    first = std::stoull(text);
    last = text.find(':') == std::string::npos ? first : std::stoull(text.substr(text.find(':') + 1));
  }
  Score score;
  for (const std::string& disease : diseases()) {
    for (uint64_t seed = first; seed <= last; ++seed) examine(make_patient(disease, seed), score);
  }
  std::cout << score.in_words() << '\n';
  EXPECT_TRUE(score.good()) << score.in_words();
  EXPECT_GE(score.with_cause, score.patients * 2 / 3);
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
  for (const DoctorStep& step : found.steps)
    text += fmt::format("\n{} {} {}", step.number, step.finding, step.forwards);
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

TEST(Clinic, WhatTheJournalHoldsTakesNoTime) {
  const Patient patient = make_patient("2 bits", 4);
  const auto path = std::filesystem::path(::testing::TempDir()) / "kaon_clinic_known";
  std::filesystem::remove(path);
  DoctorOptions options;
  options.max_drop = patient.max_drop;
  options.journal = path;
  options.subject = "patient";
  const auto run = [&] {
    return diagnose(patient.model, patient.config, *patient.data, patient.calibration.get(), options);
  };
  const Diagnosis whole = run();
  ASSERT_EQ(enum_name(whole.verdict), "cured");
  options.resume = true;
  options.time = 1e-9;
  const Diagnosis again = run();
  EXPECT_EQ(findings(again), findings(whole));
  EXPECT_FALSE(again.out_of_time);
  // What it does not hold is not begun.
  options.resume = false;
  const Diagnosis hardly = run();
  EXPECT_TRUE(hardly.out_of_time);
  EXPECT_EQ(enum_name(hardly.verdict), "not cured");
  EXPECT_TRUE(hardly.tried.empty());
}

TEST(Clinic, TheFrontIsTheBestOfAllThatWasTried) {
  const Patient patient = make_patient("2 bits", 4);
  DoctorOptions options;
  options.max_drop = patient.max_drop;
  const Diagnosis found = diagnose(patient.model, patient.config, *patient.data, patient.calibration.get(), options);
  ASSERT_EQ(enum_name(found.verdict), "cured");
  ASSERT_GE(found.front.size(), 2U);
  for (size_t i = 1; i < found.front.size(); ++i) {
    EXPECT_GT(found.front[i].bytes, found.front[i - 1].bytes);
    EXPECT_GT(found.front[i].metric, found.front[i - 1].metric);
  }
  for (const Trial& trial : found.tried) {
    // Something on the line is as small and as good.
    EXPECT_TRUE(std::ranges::any_of(found.front, [&](const FrontPoint& point) {
      return point.bytes <= trial.bytes && point.metric >= trial.after;
    })) << trial.cure;
    // Nothing that meets the target is smaller than what is prescribed by more than a hundredth.
    if (trial.note != "others do with less") continue;
    EXPECT_LE(found.cure.bytes, trial.bytes * 101 / 100) << trial.cure;
  }
  // It looked beyond what the target needs.
  EXPECT_TRUE(std::ranges::any_of(found.tried, [&](const Trial& trial) { return trial.bytes > found.cure.bytes; }));
}

TEST(Clinic, WhatReachesTheTargetIsNotPassedOverForMoreBytes) {
  // A cure of the same size does here, though with noise as large as what it brings.
  for (const auto& [disease, seed, drop] : {std::tuple("2 bits", 1, 0.05), std::tuple("two diseases", 3, 0.03)}) {
    const Patient patient = make_patient(disease, static_cast<uint64_t>(seed));
    DoctorOptions options;
    options.max_drop = drop;
    const Diagnosis found = diagnose(patient.model, patient.config, *patient.data, patient.calibration.get(), options);
    EXPECT_EQ(enum_name(found.verdict), "cured") << disease;
    EXPECT_EQ(found.cure.bytes, found.cure.bytes_before) << disease;
  }
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
  const std::vector<float> simulated = Engine(simulate(*read)).run(inputs)[0].to_float();
  // A file sums integers; what then lies between two codes may go the other way: up to two samples of 32.
  const float step = read->quantizers.back().params.scale.at(0);
  int64_t differ = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    differ += simulated[i] == expected[i] ? 0 : 1;
    EXPECT_NEAR(simulated[i], expected[i], 1.01F * step);
  }
  EXPECT_LE(differ, std::ssize(expected) / 16);
  QuantizedModel weights = made;
  for (Quantizer& one : weights.quantizers) one.enabled = !one.is_activation();
  const std::vector<float> exact = Engine(simulate(weights)).run(inputs)[0].to_float();
  const std::vector<float> found = Engine(read->original).run(inputs)[0].to_float();
  for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(found[i], exact[i], 1e-3);
  EXPECT_FALSE(read_quantizers(patient.model));
  const Diagnosis diagnosis = diagnose(*read, *patient.data, patient.calibration.get());
  EXPECT_EQ(enum_name(diagnosis.verdict), "healthy");
}

TEST(Clinic, EveryCureOfAFileCanBeTried) {
  const Patient patient = make_patient("calibration scaled", 1);
  const Model file = export_onnx(quantize(patient.model, patient.config, patient.calibration.get())).model;
  const std::optional<QuantizedModel> read = read_quantizers(file);
  ASSERT_TRUE(read);
  DoctorOptions options;
  options.metric = "sqnr_db";
  options.max_drop = 1e-6;
  options.allow = {Tier::Same, Tier::Granularity};
  const Diagnosis found = diagnose(*read, *patient.data, nullptr, options);
  const auto everywhere = std::ranges::find_if(
      found.tried, [](const Trial& trial) { return trial.cure == "ranges of the least squared error everywhere"; });
  ASSERT_NE(everywhere, found.tried.end());
  for (const Trial& trial : found.tried)
    EXPECT_EQ(trial.note.find("matches no layer"), std::string::npos) << trial.note;
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
  for (const std::string slot : {"conv2.weight", "conv2.bias"}) {
    Model broken = patient.model;
    Initializer* constant = broken.graph.find_initializer(slot);
    ASSERT_NE(constant, nullptr);
    std::vector<float> values = constant->tensor.to_float();
    values[7] = slot == "conv2.bias" ? INFINITY : NAN;
    constant->tensor = Tensor::of(constant->tensor.shape(), values);
    const std::string message = message_of(broken, patient.config, *patient.data);
    EXPECT_TRUE(message.starts_with(slot + ": '" + slot + "' holds ")) << message;
  }
}

}  // namespace
}  // namespace kaon::clinic
