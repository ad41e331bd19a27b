#include "report/page_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "report/charts.h"
#include "report/histogram_bars.h"

namespace kaon {

namespace {

using nlohmann::json;

constexpr int64_t kBars = 120;
constexpr size_t kChannels = 160;

/// Four digits: the page is looked at, summary.json is computed with. Inf and -Inf as text, NaN as null.
json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr);
}

/// {start, width, counts}: bar i covers start + i · width to start + (i + 1) · width.
json histogram_data(const Histogram& histogram, double step) {
  if (histogram.count() == 0) return nullptr;
  const Bars bars = join_bins(histogram_series({}, histogram, step), kBars);
  json counts = json::array();
  for (const double height : bars.heights) counts.push_back(number(height * bars.width));
  // More digits than elsewhere: every bar's place follows from these two.
  return {{"start", bars.edges[1] - bars.width}, {"width", bars.width}, {"counts", std::move(counts)}};
}

/// Ranges of the channels; where there are many, each entry stands for `group` of them.
json channel_data(const std::vector<ChannelStats>& channels) {
  if (channels.size() < 2) return nullptr;
  const size_t group = (channels.size() + kChannels - 1) / kChannels;
  json low = json::array();
  json high = json::array();
  json mean = json::array();
  for (size_t begin = 0; begin < channels.size(); begin += group) {
    const size_t end = std::min(begin + group, channels.size());
    float min = channels[begin].min;
    float max = channels[begin].max;
    double sum = 0;
    for (size_t i = begin; i < end; ++i) {
      min = std::min(min, channels[i].min);
      max = std::max(max, channels[i].max);
      sum += channels[i].abs_mean;
    }
    low.push_back(number(min));
    high.push_back(number(max));
    mean.push_back(number(sum / static_cast<double>(end - begin)));
  }
  return {{"count", channels.size()},
          {"group", group},
          {"low", std::move(low)},
          {"high", std::move(high)},
          {"mean", std::move(mean)}};
}

json optional_number(const std::optional<double>& value) { return value ? number(*value) : json(nullptr); }

json output_data(const OutputDebug& output) {
  return {{"name", output.name},
          {"sqnr_db", output.error.count > 0 ? number(output.error.sqnr_db()) : json(nullptr)},
          {"cosine", output.error.count > 0 ? number(output.error.cosine()) : json(nullptr)},
          {"agreement", optional_number(output.agreement)},
          {"top1", optional_number(output.top1)},
          {"float_top1", optional_number(output.float_top1)}};
}

}  // namespace

json quantizer_data(const QuantizerDebug& quantizer) {
  json data = {{"id", quantizer.id},
               {"tensor", quantizer.tensor},
               {"kind", name_of(quantizer.kind)},
               {"format", quantizer.format},
               {"description", quantizer.description},
               {"dynamic", quantizer.dynamic},
               {"shape", quantizer.shape},
               {"reading", quantizer.reading},
               {"count", quantizer.input.count},
               {"non_finite", quantizer.non_finite()},
               {"min", number(quantizer.input.min)},
               {"max", number(quantizer.input.max)},
               {"mean", number(quantizer.input.mean)},
               {"stddev", number(quantizer.input.stddev())},
               {"output_gain", optional_number(quantizer.output_gain)},
               {"output_alone", optional_number(quantizer.output_alone)},
               {"channel_error", number(quantizer.channel_error())},
               {"local_error", number(quantizer.local_error())},
               {"cumulative_error", number(quantizer.cumulative_error())},
               {"mean_relative_error", number(quantizer.mean_relative_error())},
               {"sqnr_db", number(quantizer.io.sqnr_db())},
               {"mse", number(quantizer.io.mse())},
               {"cosine", number(quantizer.io.cosine())},
               {"max_abs", number(quantizer.io.max_abs())},
               {"clipped", number(quantizer.clipped())},
               {"zeroed", number(quantizer.zeroed())},
               {"clip_error", number(quantizer.clip_error())},
               {"round_error", number(quantizer.round_error())},
               {"kurtosis", number(quantizer.kurtosis())},
               {"channel_imbalance", number(quantizer.channel_imbalance())},
               {"outlier_channels", quantizer.outlier_channels().size()},
               {"bias_shift", number(quantizer.bias_shift())},
               {"own_share", number(quantizer.own_share())},
               {"weight_share", number(quantizer.weight_share())},
               {"inherited_share", number(quantizer.inherited_share())},
               {"channels", channel_data(quantizer.channels)},
               {"input", histogram_data(quantizer.input_histogram, 0)},
               {"output", histogram_data(quantizer.output_histogram, quantizer.step)},
               {"reference", histogram_data(quantizer.reference_histogram, 0)}};
  if (quantizer.scale.size() == 1) data["scale"] = number(quantizer.scale.front());
  if (quantizer.scale.size() > 1) {
    const auto [low, high] = std::minmax_element(quantizer.scale.begin(), quantizer.scale.end());
    data["scales"] = {{"count", quantizer.scale.size()}, {"low", number(*low)}, {"high", number(*high)}};
  }
  if (quantizer.zero_point.size() == 1) data["zero_point"] = quantizer.zero_point.front();
  if (quantizer.representable) {
    data["representable"] = {number(quantizer.representable->min), number(quantizer.representable->max)};
  }
  return data;
}

std::string page_data(const DebugReport& report) {
  json data = {{"model", report.model},           {"scheme", report.scheme},
               {"samples", report.samples},       {"layers", report.layers},
               {"parameters", report.parameters}, {"observed", report.observed},
               {"ranked", report.ranked},         {"nan", nullptr}};
  data["outputs"] = json::array();
  for (const OutputDebug& output : report.outputs) data["outputs"].push_back(output_data(output));
  data["quantizers"] = json::array();
  for (const QuantizerDebug& quantizer : report.quantizers) data["quantizers"].push_back(quantizer_data(quantizer));
  data["rows"] = json::array();
  for (const DebugRow& row : report.rows) {
    data["rows"].push_back({{"layer", row.layer},
                            {"slot", name_of(row.slot)},
                            {"op", row.op},
                            {"quantizer", row.quantizer},
                            {"order", row.order}});
  }
  data["skipped"] = json::array();
  for (const Skipped& skipped : report.skipped) {
    data["skipped"].push_back({{"layer", skipped.layer}, {"reason", skipped.reason}});
  }
  if (report.nan) {
    data["nan"] = {{"layer", report.nan->layer},         {"slot", name_of(report.nan->slot)},
                   {"tensor", report.nan->tensor},       {"batch", report.nan->batch},
                   {"element", report.nan->element},     {"value", number(report.nan->value)},
                   {"float_run", report.nan->float_run}, {"index", report.nan->index}};
  }
  return script_text(data);
}

std::string script_text(const json& data) {
  // Names may hold any bytes.
  const std::string text = json_text(data);
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

}  // namespace kaon
