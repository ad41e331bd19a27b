#include "examine.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "doctor/doctor.h"

namespace kaon::clinic {
namespace {

bool among_first(const Cause& cause, const std::vector<std::string>& wanted) {
  const auto shown = std::span(cause.layers).first(std::min(cause.layers.size(), wanted.size()));
  return std::ranges::any_of(
      shown, [&](const std::string& layer) { return std::ranges::find(wanted, layer) != wanted.end(); });
}

}  // namespace

std::string Score::in_words() const {
  return fmt::format("{} patients: cause {}/{}, layer {}/{}, restored {}/{}, false alarms {}/{}", patients, cause,
                     with_cause, layer, with_layer, restored, curable, false_alarms, healthy);
}

bool Score::good() const {
  const auto share = [](int64_t part, int64_t whole, double least) {
    return static_cast<double>(part) >= least * static_cast<double>(whole);
  };
  return share(cause, with_cause, 0.95) && share(layer, with_layer, 0.9) && share(restored, curable, 0.9) &&
         false_alarms == 0;
}

void examine(const Patient& patient, Score& score) {
  DoctorOptions options;
  options.max_drop = patient.max_drop;
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
    std::cout << (alarm ? "FALSE ALARM " : "ok ") << line << std::endl;
    return;
  }
  // A disease that this model takes without harm is no patient.
  if (found.verdict == Verdict::Healthy) {
    std::cout << "harmless " << line << std::endl;
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
            << line << std::endl;
}

}  // namespace kaon::clinic
