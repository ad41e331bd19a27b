#include "doctor/patient.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "engine/engine.h"
#include "graph/finite.h"
#include "graph/stored.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {

Tensor exact_constant(const QuantizedModel& quantized, const std::string& name) {
  return widened(find_stored(quantized.model.graph, name)->tensor);
}

namespace {

using nlohmann::json;

/// Of the float model's outputs, which all others are compared with.
constexpr int64_t kReferenceBytes = int64_t{512} << 20;
constexpr int64_t kMostCalibration = 512;

json to_json(const Scores& scores) {
  return {{"first", scores.first},
          {"metric", scores.metric},
          {"kl", scores.kl},
          {"noise", scores.noise},
          {"non_finite", scores.non_finite}};
}

Scores scores_from(const json& entry) {
  Scores scores;
  scores.first = entry.at("first").get<int64_t>();
  scores.metric = entry.at("metric").get<std::vector<double>>();
  scores.kl = entry.at("kl").get<std::vector<double>>();
  scores.noise = entry.at("noise").get<std::vector<double>>();
  scores.non_finite = entry.at("non_finite").get<int64_t>();
  return scores;
}

/// The question with weights that are off as they were before algorithms chose codes for them, and with the biases that
/// go with that.
Question without_rounding(const QuantizedModel& quantized, Question question) {
  for (const Layer& layer : quantized.layers) {
    const Quantizer* weight = quantized.find(layer.name, Slot::Weight);
    if (weight == nullptr || question.on[static_cast<size_t>(weight->id)]) continue;
    for (const std::string& name : {weight->tensor, layer.bias}) {
      if (quantized.rounded.contains(name)) question.constants.emplace(name, exact_constant(quantized, name));
    }
  }
  return question;
}

/// Throws Numeric where a weight or a bias is NaN or Inf: what that does to the outputs is no quantizer's fault.
void expect_finite_layers(const Graph& graph) {
  for (const Layer& layer : layers(graph)) {
    if (layer.op == "Gather") continue;  // a table may hold -Inf to hide what is looked up
    for (const auto& [slot, name] : {std::pair(Slot::Weight, layer.weight), std::pair(Slot::Bias, layer.bias)}) {
      const Initializer* constant = find_stored(graph, name);
      const int64_t at = constant == nullptr ? -1 : first_non_finite(constant->tensor);
      if (at < 0) continue;
      fail(ErrorCode::Numeric, fmt::format("{}.{}", layer.name, name_of(slot)), "'{}' holds {} at element {}", name,
           float_view(constant->tensor).at(at), to_string(index_at(constant->tensor.shape(), at)));
    }
  }
}

/// What questions about these samples are called in the journal.
std::string key_of(const std::string& key, int64_t first, int64_t count) {
  return fmt::format("{} {}+{}", key, first, count);
}

}  // namespace

std::string key_of(const Prescription& prescription) {
  const char* kind = prescription.as_brought ? "trial as brought " : prescription.on_data ? "trial on data " : "trial ";
  return kind + json_text(to_json(prescription.config));
}

Patient::Patient(const Model& model, const Config& config, const Dataset& data, const Dataset* calibration,
                 const DoctorOptions& options)
    : Patient(model, data, calibration, options) {
  as_brought_in_ = {config, false, false};
  quantized_ = quantize_as(as_brought_in_);
  samples_ = data.size();
}

Patient::Patient(const QuantizedModel& brought, const Dataset& data, const Dataset* calibration,
                 const DoctorOptions& options)
    : Patient(brought.original, data, calibration, options) {
  as_brought_in_ = {brought.config, false, true};
  quantized_ = brought;
  samples_ = data.size();
}

Patient::Patient(const Model& model, const Dataset& data, const Dataset* calibration, const DoctorOptions& options)
    : model_(model),
      data_(data),
      calibration_(calibration),
      options_(options),
      scorer_(metric_facts(options.metric, data)) {
  if (!(options.max_drop >= 0))
    fail(ErrorCode::InvalidInput, "max_drop", "is {}; 0 or more is needed", options.max_drop);
  if (!data.side_inputs().carry.empty()) {
    fail(ErrorCode::Unsupported, "data",
         "a state is carried from sample to sample; the doctor asks about samples apart");
  }
  expect_finite_layers(model.graph);
  if (!options.journal.empty()) journal_ = Journal(options.journal, options.subject, options.resume);
  batch_ = batch_for(model.graph, options.batch, data);
  if (data.size() < 2 * batch_) batch_ = batch_for(model.graph, std::max<int64_t>(1, data.size() / 2), data);
  if (data.size() < 2 * batch_) {
    fail(ErrorCode::InvalidInput, "data",
         "{} sample{} in batches of {}: at least two batches are needed, one to choose a cure by and one to confirm it",
         data.size(), data.size() == 1 ? "" : "s", batch_);
  }
  if (calibration_ == nullptr) {
    const int64_t half = data.size() / 2 / batch_ * batch_;
    calibration_ =
        &own_calibration_.emplace(data, 0, std::min(half, std::max(kMostCalibration, batch_) / batch_ * batch_));
  }
}

Part Patient::first_samples(int64_t count) const {
  const int64_t batches = std::max<int64_t>(1, std::min(count, chosen_) / batch_);
  return {data_, 0, std::min(batches * batch_, samples_)};
}

void Patient::weigh(const std::vector<Tensor>& outputs, int64_t samples) {
  if (scorer_.facts().name != "sqnr_db") return;
  int64_t counted = 0;
  std::vector<double> weights;
  for (const Tensor& output : outputs) {
    double energy = 0;
    if (is_float(output) && output.rank() > 0 && output.shape()[0] == samples) {
      for (const float value : output.to_float()) energy += static_cast<double>(value) * value;
    }
    weights.push_back(energy > 0 ? 1 / std::sqrt(energy / static_cast<double>(samples)) : 0);
    counted += energy > 0 ? 1 : 0;
  }
  if (counted > 1) weights_ = weights;
}

Tensor Patient::scored(const std::vector<Tensor>& outputs) const {
  if (weights_.empty()) return outputs.at(0);
  int64_t width = 0, samples = 0;
  for (size_t k = 0; k < weights_.size(); ++k) {
    if (weights_[k] == 0) continue;
    samples = outputs[k].shape()[0];
    width += outputs[k].size() / samples;
  }
  std::vector<float> joined(static_cast<size_t>(width * samples));
  int64_t at = 0;
  for (size_t k = 0; k < weights_.size(); ++k) {
    if (weights_[k] == 0) continue;
    const Tensor output = widened(outputs[k]);
    const std::span<const float> values = output.as<float>();
    const int64_t each = outputs[k].size() / samples;
    for (int64_t i = 0; i < outputs[k].size(); ++i) {
      joined[static_cast<size_t>(i / each * width + at + i % each)] =
          static_cast<float>(values[static_cast<size_t>(i)] * weights_[k]);
    }
    at += each;
  }
  return Tensor::of(Shape{samples, width}, joined);
}

void Patient::run_float() {
  Engine engine(quantized_.original);
  options_.progress->begin("float model", samples_);
  for (int64_t first = 0; first < samples_; first += batch_) {
    const int64_t count = std::min(batch_, samples_ - first);
    const Batch batch = data_.read(first, count);
    check_finite(batch, first);
    const std::vector<Tensor> outputs = engine.run(batch.inputs);
    if (outputs.empty()) fail(ErrorCode::InvalidInput, "output", "the model has none");
    if (first == 0) weigh(outputs, count);
    const Tensor output = scored(outputs);
    if (first == 0) {
      const int64_t each = std::max<int64_t>(1, output.size() * static_cast<int64_t>(sizeof(float)) / count);
      const int64_t most = std::max(2 * batch_, kReferenceBytes / each / batch_ * batch_);
      samples_ = std::min(samples_, most);
    }
    scorer_.add_reference(output, batch.labels);
    options_.progress->at(first + count);
  }
  options_.progress->end();
  chosen_ = samples_ / 2 / batch_ * batch_;
  forwards_ += 1;
}

bool Patient::may_measure(const std::string& key) {
  if (options_.time <= 0 || watch_.seconds() < options_.time || journal_.find(key) != nullptr) return true;
  ran_out_of_time_ = true;
  return false;
}

bool Patient::may_ask(const std::string& key, int64_t first, int64_t count) {
  return may_measure(key_of(key, first, count));
}

bool Patient::may_try(const Prescription& prescription) { return may_measure(key_of(prescription)); }

std::vector<Scores> Patient::ask(const std::string& key, const QuantizedModel& quantized, const Question& base,
                                 std::span<const Question> questions, int64_t first, int64_t count) {
  std::vector<Scores> scores(questions.size());
  count_samples(static_cast<double>(count) * static_cast<double>(questions.size()));
  const std::string full = key_of(key, first, count);
  if (const std::string* known = journal_.find(full); known != nullptr) {
    const json entries = json::parse(*known);
    for (size_t i = 0; i < questions.size(); ++i) scores[i] = scores_from(entries.at(i));
    return scores;
  }
  const Part part(data_, first, count);
  WhatIf what_if(quantized, part, {.batch = batch_, .memory = int64_t{256} << 20, .progress = options_.progress});
  std::vector<Question> asked;
  for (const Question& question : questions) asked.push_back(without_rounding(quantized, question));
  what_if.ask(without_rounding(quantized, base), asked,
              [&](size_t question, int64_t at, const std::vector<Tensor>& outputs) {
                scorer_.score(first + at, scored(outputs), scores[question]);
              });
  json entry = json::array();
  for (const Scores& one : scores) entry.push_back(to_json(one));
  journal_.note(full, json_text(entry));
  return scores;
}

Question Patient::as_it_is() const {
  Question question;
  for (const Quantizer& quantizer : quantized_.quantizers) question.on.push_back(quantizer.enabled);
  return question;
}

Question Patient::all_off() const {
  Question question;
  question.on.resize(quantized_.quantizers.size());
  return question;
}

QuantizedModel Patient::quantize_as(const Prescription& prescription) {
  if (prescription.as_brought) return quantized_;
  QuantizeSettings settings;
  settings.batch = options_.batch;
  settings.progress = options_.progress;
  if (!needs_calibration(prescription.config)) return quantize(model_, prescription.config, nullptr, settings);
  const Part own(data_, 0, std::max<int64_t>(chosen_, 1));
  const Dataset* samples = prescription.on_data ? &own : calibration_;
  if (samples_ > 0)
    count_samples(static_cast<double>(samples->size() * (1 + std::ssize(prescription.config.algorithms))));
  return quantize(model_, prescription.config, samples, settings);
}

Scores Patient::evaluate(const QuantizedModel& quantized) {
  Scores scores;
  Engine engine(simulate(quantized));
  options_.progress->begin("measuring", samples_);
  for (int64_t first = 0; first < samples_; first += batch_) {
    const int64_t count = std::min(batch_, samples_ - first);
    scorer_.score(first, scored(engine.run(data_.read(first, count).inputs)), scores);
    options_.progress->at(first + count);
  }
  options_.progress->end();
  return scores;
}

const Outcome& Patient::try_out(const Prescription& prescription) {
  const std::string key = key_of(prescription);
  if (const auto found = outcomes_.find(key); found != outcomes_.end()) return found->second;
  Outcome& outcome = outcomes_[key];
  if (const std::string* text = journal_.find(key); text != nullptr) {
    const json known = json::parse(*text);
    outcome.scores = scores_from(known.at("scores"));
    outcome.bytes = known.at("bytes").get<int64_t>();
    outcome.bits = known.at("bits").get<double>();
    outcome.seconds = known.at("seconds").get<double>();
    outcome.error = known.at("error").get<std::string>();
    forwards_ += known.at("forwards").get<double>();
    return outcome;
  }
  const Stopwatch watch;
  const double before = forwards_;
  try {
    const QuantizedModel quantized = quantize_as(prescription);
    outcome.scores = evaluate(quantized);
    forwards_ += 1;
    outcome.bytes = stored_bytes(quantized);
    outcome.bits = average_bits(quantized);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Io || error.code() == ErrorCode::Internal) throw;
    outcome.error = error.what();
  }
  outcome.seconds = watch.seconds();
  const json entry = {{"scores", to_json(outcome.scores)}, {"bytes", outcome.bytes}, {"bits", outcome.bits},
                      {"seconds", outcome.seconds},        {"error", outcome.error}, {"forwards", forwards_ - before}};
  journal_.note(key, json_text(entry));
  return outcome;
}

int64_t stored_bytes(const QuantizedModel& quantized) {
  std::map<std::string, int64_t> bytes;
  for (const Initializer& initializer : quantized.model.graph.initializers) {
    bytes[initializer.name] = initializer.tensor.byte_size();
  }
  std::map<std::string, int64_t> stored;
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (!quantizer.enabled) continue;
    const auto parameters = std::ssize(quantizer.params.scale) * 4 + std::ssize(quantizer.params.zero_point);
    if (quantizer.is_activation()) {
      bytes["|" + std::to_string(quantizer.id)] = parameters;
      continue;
    }
    const Format& f = format(quantizer.spec.format);
    const int64_t count = constant_of(quantized, quantizer.tensor).size();
    int64_t bits = count * f.bits;
    if (f.kind == FormatKind::Block) bits += count / std::max(f.block, 1) * 8;
    stored[find_stored(quantized.model.graph, quantizer.tensor)->name] += (bits + 7) / 8 + parameters;
  }
  for (const auto& [name, size] : stored) bytes[name] = size;
  int64_t sum = 0;
  for (const auto& [name, size] : bytes) sum += size;
  return sum;
}

double average_bits(const QuantizedModel& quantized) {
  double bits = 0, count = 0;
  for (const Layer& layer : quantized.layers) {
    const Quantizer* weight = quantized.find(layer.name, Slot::Weight);
    const auto elements = static_cast<double>(element_count(layer.weight_shape));
    count += elements;
    const Initializer* exact = find_stored(quantized.model.graph, layer.weight);
    const int as_it_is = exact != nullptr ? bits_of(exact->tensor.type()) : 32;
    bits += elements * (weight != nullptr && weight->enabled ? format(weight->spec.format).bits : as_it_is);
  }
  return count == 0 ? 0 : bits / count;
}

}  // namespace kaon
