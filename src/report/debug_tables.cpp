#include "report/debug_tables.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace kaon {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLongList = 4096;

/// A number where there is one, all of them where there are several, their range where there are very many.
template <typename T>
Json numbers(const std::vector<T>& values) {
  if (values.empty()) return nullptr;
  if (values.size() == 1) return values.front();
  if (values.size() <= kLongList) return values;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return {{"min", *low}, {"max", *high}, {"count", values.size()}};
}

Json nan_json(const std::optional<NonFiniteAt>& at) {
  if (!at) return nullptr;
  return {{"layer", at->layer},
          {"slot", name_of(at->slot)},
          {"batch", at->batch < 0 ? Json(nullptr) : Json(at->batch)},
          {"index", at->index},
          {"element", at->element},
          {"tensor", at->tensor},
          {"value", fmt::format("{}", at->value)},
          {"float_run", at->float_run}};
}

Json output_json(const OutputDebug& output) {
  const auto or_null = [](const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); };
  const bool seen = output.error.count > 0;
  return {{"name", output.name},
          {"sqnr_db", seen ? Json(output.error.sqnr_db()) : Json(nullptr)},
          {"mse", seen ? Json(output.error.mse()) : Json(nullptr)},
          {"cosine", seen ? Json(output.error.cosine()) : Json(nullptr)},
          {"agreement", or_null(output.agreement)},
          {"top1", or_null(output.top1)},
          {"float_top1", or_null(output.float_top1)}};
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_array() && !value.empty()) {
    const auto [low, high] = std::minmax_element(value.begin(), value.end());
    return *low == *high ? low->dump() : fmt::format("{} … {}", low->dump(), high->dump());
  }
  if (value.is_object()) return fmt::format("{} … {}", json_text(value.at("min")), json_text(value.at("max")));
  if (!value.is_string()) return json_text(value);
  std::string quoted = "\"";
  for (const char c : value.get<std::string>()) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

Json row_json(const DebugReport& report, const DebugRow& row) {
  const QuantizerDebug& q = report.of(row);
  const bool seen = q.io.count > 0;
  const auto or_null = [&](double value) { return seen ? Json(value) : Json(nullptr); };
  const std::vector<int64_t> outliers = q.outlier_channels();
  return {{"id", q.id},
          {"layer", row.layer},
          {"tensor", q.tensor},
          {"slot", name_of(row.slot)},
          {"format", q.format},
          {"scale", numbers(q.scale)},
          {"zero_point", q.zero_point.empty() && !q.scale.empty() ? Json(0) : numbers(q.zero_point)},
          {"min", or_null(q.input.min)},
          {"max", or_null(q.input.max)},
          {"mean_relative_error", q.mean_relative_error()},
          {"sqnr_db", q.io.sqnr_db()},
          {"mse", q.io.mse()},
          {"cosine", q.io.cosine()},
          {"max_abs", q.io.max_abs()},
          {"clipped", or_null(q.clipped())},
          {"zeroed", or_null(q.zeroed())},
          {"clip_error", or_null(q.clip_error())},
          {"round_error", or_null(q.round_error())},
          {"kurtosis", or_null(q.kurtosis())},
          {"channel_imbalance", or_null(q.channel_imbalance())},
          {"outlier_channels", outliers.size()},
          {"bias_shift", q.bias_shift()},
          {"local_error", or_null(q.local_error())},
          {"cumulative_error", or_null(q.cumulative_error())},
          {"output_gain", q.output_gain ? Json(*q.output_gain) : Json(nullptr)},
          {"output_alone", q.output_alone ? Json(*q.output_alone) : Json(nullptr)},
          {"own_share", or_null(q.own_share())},
          {"weight_share", or_null(q.weight_share())},
          {"inherited_share", or_null(q.inherited_share())},
          {"reading", q.reading},
          {"channel_error", or_null(q.channel_error())},
          {"ref_input_error", q.ref_input.mean_relative_error()},
          {"ref_output_error", q.ref_output.mean_relative_error()},
          {"elements", q.io.count},
          {"channels", q.channels.size()},
          {"non_finite", q.non_finite()},
          {"op", row.op}};
}

Json weight_stats_json(const DebugReport& report, const DebugRow& row) {
  const QuantizerDebug& q = report.of(row);
  Json stats = row_json(report, row);
  stats["shape"] = q.shape;
  stats["mean"] = q.input.mean;
  stats["std"] = q.input.stddev();
  stats["skewness"] = q.input.skewness();
  stats["outlier_channel_indices"] = q.outlier_channels();
  return stats;
}

Json to_json(const DebugReport& report) {
  Json rows = Json::array();
  for (const DebugRow& row : report.rows) rows.push_back(row_json(report, row));
  Json outputs = Json::array();
  for (const OutputDebug& output : report.outputs) outputs.push_back(output_json(output));
  Json skipped = Json::array();
  for (const Skipped& skip : report.skipped) skipped.push_back(to_json(skip));
  return {{"model", report.model},
          {"scheme", report.scheme},
          {"samples", report.samples},
          {"ranked_samples", report.ranked},
          {"output_sqnr_db", report.ranked > 0 ? Json(-10 * std::log10(report.output_error)) : Json(nullptr)},
          {"outputs", std::move(outputs)},
          {"quantizers", std::move(rows)},
          {"nan", nan_json(report.nan)},
          {"batches", report.batches},
          {"layers", report.layers},
          {"parameters", report.parameters},
          {"skipped", std::move(skipped)}};
}

std::string to_csv(const DebugReport& report) {
  const auto joined = [](const std::vector<std::string>& fields) {
    return fmt::format("{}\n", fmt::join(fields, ","));
  };
  std::string text;
  for (const DebugRow& row : report.rows) {
    std::vector<std::string> head, line;
    const Json json = row_json(report, row);
    for (const auto& [key, value] : json.items()) {
      head.push_back(key);
      line.push_back(csv_field(value));
    }
    if (text.empty()) text = joined(head);
    text += joined(line);
  }
  return text;
}

}  // namespace kaon
