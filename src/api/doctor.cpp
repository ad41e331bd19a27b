#include "api/doctor.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "api/debug.h"
#include "api/doctor_page.h"
#include "api/language_parts.h"
#include "api/load_model.h"
#include "base/atomic_file.h"
#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/sha256.h"
#include "data/dataset.h"
#include "export/export.h"
#include "graph/compute_in_float32.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

/// What a journal belongs to: anything here that changes makes its figures those of another run.
std::string subject_of(const DoctorCall& call, const Config& config) {
  std::error_code ignored;
  const bool file = fs::is_regular_file(call.model, ignored);
  constexpr int kVersion = 1;  // of what is measured, and how
  ordered_json subject = {{"version", kVersion},
                          {"model", file ? sha256(MappedFile::open(call.model)->bytes()) : call.model.string()},
                          {"config", to_json(config)},
                          {"data", fs::absolute(call.data.data).string()},
                          {"calib", call.data.calib.string()},
                          {"limit", call.data.limit},
                          {"calib_limit", call.data.calib_limit},
                          {"batch", call.data.batch},
                          {"metric", call.metric},
                          {"seed", call.seed}};
  return json_text(subject);
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

/// As plain ONNX; what ONNX has no type for is stored as float.
void write_model(const QuantizedModel& quantized, const fs::path& path, Diagnosis& diagnosis) {
  Exported exported;
  try {
    exported = export_onnx(quantized);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Unsupported) throw;
    exported = export_onnx(quantized, {.fake = true});
    diagnosis.cure.changes.push_back(std::string("stored as float in model.onnx: ") + error.what());
  }
  // The folder that these appear in is a draft itself.
  for (const auto& file : draft_onnx(exported.model, path)) file->commit();
}

void write_folder(Diagnosis& diagnosis, const Dataset& data, const DoctorCall& call) {
  AtomicFolder folder(call.output);
  const fs::path& draft = folder.draft();
  write_text(draft / "cure.json", json_text(to_json(diagnosis.cure.config), 2) + "\n");
  if (diagnosis.verdict != Verdict::DataMismatch) write_model(diagnosis.after, draft / "model.onnx", diagnosis);
  for (size_t i = 0; i < diagnosis.front.size(); ++i) {
    write_text(draft / fmt::format("front_{}.json", i + 1), json_text(to_json(diagnosis.front[i].config), 2) + "\n");
  }
  write_text(draft / "diagnosis.json", json_text(to_json(diagnosis), 2) + "\n");
  write_doctor_pages(diagnosis, data, call.data.batch, draft, *call.progress);
  folder.commit();
}

ordered_json numbers_json(const Numbers& numbers) {
  ordered_json json = ordered_json::object();
  for (const auto& [name, value] : numbers) json[name] = value;
  return json;
}

/// NaN and Inf are no JSON.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json slots_json(const std::vector<Slot>& slots) {
  ordered_json json = ordered_json::array();
  for (const Slot slot : slots) json.push_back(name_of(slot));
  return json;
}

}  // namespace

Diagnosis doctor_file(const DoctorCall& asked) {
  DoctorCall call = asked;
  call.data.tokenizer = tokenizer_of(call.model);
  if (call.output.empty()) fail(ErrorCode::InvalidConfig, "", "nowhere to write to: give -o DIR");
  if (call.data.data.empty()) fail(ErrorCode::InvalidConfig, "", "nothing to measure on: give --data");
  check_debug_folder(call.output, call.force || call.resume);
  const bool as_it_is = !asks_to_quantize(call.quant);  // then the file must be quantized already
  Config config = as_it_is ? Config() : config_of(call.quant);
  if (!as_it_is && is_language_model(call.model)) {
    config = for_language_model(config, lm::LanguageModel::open(call.model));
  }
  DoctorOptions options;
  options.metric = call.metric;
  options.max_drop = call.max_drop;
  options.expect = call.expect;
  options.allow.clear();
  for (const std::string& tier : call.allow) options.allow.insert(enum_value<Tier>(tier, "--allow"));
  options.time = call.time;
  options.batch = call.data.batch;
  options.seed = call.seed;
  options.progress = call.progress;
  options.resume = call.resume;
  options.subject = subject_of(call, config);
  Model model = load_model(call.model);
  std::vector<std::string> notes;
  for (const std::string& note : {make_inputs_constant(model), note_on_halves(model)}) {
    if (!note.empty()) notes.push_back(note);
  }
  compute_in_float32(model);
  const std::unique_ptr<Dataset> data = open_data(call.data, model.graph);
  const std::unique_ptr<Dataset> calibration =
      call.data.calib.empty() ? nullptr : open_calibration(call.data, model.graph);
  std::error_code problem;
  const bool made = fs::create_directories(call.output, problem);
  if (problem) fail(ErrorCode::Io, call.output.string(), "cannot be made: {}", problem.message());
  options.journal = call.output / "journal.jsonl";
  Diagnosis diagnosis = [&] {
    try {
      if (!as_it_is) return diagnose(model, config, *data, calibration.get(), options);
      const std::optional<QuantizedModel> brought = read_quantizers(model);
      if (!brought) {
        fail(ErrorCode::InvalidConfig, "", "is not quantized: give --scheme (`kaon schemes` lists them) or --config");
      }
      return diagnose(*brought, *data, calibration.get(), options);
    } catch (const Error& error) {
      if (made) fs::remove(call.output, problem);  // where it is empty
      throw Error(error.code(), error.what(), call.model.string());
    }
  }();
  diagnosis.notes = std::move(notes);
  diagnosis.model = call.model.filename().string();
  diagnosis.scheme = as_it_is ? "the file" : config_name(call.quant);
  write_folder(diagnosis, *data, call);
  return diagnosis;
}

ordered_json to_json(const Diagnosis& diagnosis) {
  ordered_json steps = ordered_json::array();
  for (const DoctorStep& step : diagnosis.steps) {
    steps.push_back({{"step", step.number},
                     {"name", step.name},
                     {"finding", step.finding},
                     {"seconds", step.seconds},
                     {"forwards", step.forwards},
                     {"numbers", numbers_json(step.numbers)}});
  }
  ordered_json causes = ordered_json::array();
  for (const Cause& cause : diagnosis.causes) {
    causes.push_back({{"cause", enum_name(cause.kind)},
                      {"layers", cause.layers},
                      {"slots", slots_json(cause.slots)},
                      {"share", cause.share},
                      {"confirmed_by", cause.confirmed_by},
                      {"evidence", numbers_json(cause.evidence)},
                      {"text", cause.text}});
  }
  ordered_json sensitivity = ordered_json::array();
  for (const Sensitivity& row : diagnosis.sensitivity) {
    sensitivity.push_back({{"id", row.id},
                           {"layer", row.layer},
                           {"slot", name_of(row.slot)},
                           {"tensor", row.tensor},
                           {"format", row.format},
                           {"samples", row.samples},
                           {"only_this", number(row.only_this)},
                           {"without_this", number(row.without_this)},
                           {"gain", row.gain},
                           {"low", row.low},
                           {"high", row.high},
                           {"alone", row.alone},
                           {"share", row.share},
                           {"kl", number(row.kl)},
                           {"sqnr_db", number(row.sqnr_db)}});
  }
  ordered_json tried = ordered_json::array();
  for (const Trial& trial : diagnosis.tried) {
    tried.push_back({{"cure", trial.cure},
                     {"tier", enum_name(trial.tier)},
                     {"layers", trial.layers},
                     {"before", number(trial.before)},
                     {"after", number(trial.after)},
                     {"harm_before", trial.harm_before},
                     {"harm_after", trial.harm_after},
                     {"kept", trial.kept},
                     {"bytes", trial.bytes},
                     {"seconds", trial.seconds},
                     {"note", trial.note}});
  }
  ordered_json front = ordered_json::array();
  for (size_t i = 0; i < diagnosis.front.size(); ++i) {
    const FrontPoint& point = diagnosis.front[i];
    front.push_back({{"bytes", point.bytes},
                     {"metric", number(point.metric)},
                     {"config", fmt::format("front_{}.json", i + 1)},
                     {"name", point.name}});
  }
  const Cure& cure = diagnosis.cure;
  ordered_json calibration = nullptr;
  if (cure.calibrate_on_data) {
    calibration = {{"data", "the evaluation data"}, {"samples", cure.calibration_samples}};
  }
  const bool written = diagnosis.verdict != Verdict::DataMismatch;
  return {{"model", diagnosis.model},
          {"scheme", diagnosis.scheme},
          {"metric", diagnosis.metric},
          {"samples", diagnosis.samples},
          {"lower_is_better", diagnosis.lower_is_better},
          {"float", number(diagnosis.exact)},
          {"quantized", number(diagnosis.quantized)},
          {"target", number(diagnosis.target)},
          {"cured", number(diagnosis.cured)},
          {"recovered", number(diagnosis.recovered)},
          {"held_out",
           {{"samples", diagnosis.held_out.samples},
            {"float", number(diagnosis.held_out.exact)},
            {"quantized", number(diagnosis.held_out.quantized)},
            {"cured", number(diagnosis.held_out.cured)}}},
          {"verdict", enum_name(diagnosis.verdict)},
          {"advice", diagnosis.advice},
          {"steps", std::move(steps)},
          {"causes", std::move(causes)},
          {"sensitivity", std::move(sensitivity)},
          {"tried", std::move(tried)},
          {"front", std::move(front)},
          {"cure",
           {{"config", "cure.json"},
            {"model", written ? ordered_json("model.onnx") : ordered_json(nullptr)},
            {"changes", cure.changes},
            {"calibration", std::move(calibration)},
            {"bytes_before", cure.bytes_before},
            {"bytes", cure.bytes},
            {"bits_average", cure.bits_average}}},
          {"out_of_time", diagnosis.out_of_time},
          {"forwards", diagnosis.forwards},
          {"seconds", diagnosis.seconds},
          {"peak_mb", diagnosis.peak_mb},
          {"seed", diagnosis.seed}};
}

}  // namespace kaon
