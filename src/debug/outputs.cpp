#include "debug/outputs.h"

#include <algorithm>

namespace kaon {
namespace {

bool is_real(DType type) {
  return type == DType::Float32 || type == DType::Float16 || type == DType::BFloat16 || type == DType::Float64;
}

Metric& started(std::unique_ptr<Metric>& metric, const char* name) {
  if (metric == nullptr) metric = metric_kind(name).make();
  return *metric;
}

std::optional<double> value_of(const std::unique_ptr<Metric>& metric) {
  return metric == nullptr ? std::nullopt : std::optional(metric->value());
}

}  // namespace

OutputWatch::OutputWatch(const Graph& graph) {
  for (const ValueInfo& output : graph.outputs) outputs_.push_back({.name = output.name});
}

void OutputWatch::see(const Batch& batch, int64_t first, int64_t samples, const std::vector<Tensor>& exact,
                      const std::vector<Tensor>& quantized) {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    const bool same = exact[i].defined() && quantized[i].defined() && exact[i].shape() == quantized[i].shape();
    if (!same || !is_real(exact[i].type()) || exact[i].size() == 0) continue;
    const std::vector<float> values = quantized[i].to_float();
    const std::vector<float> reference = exact[i].to_float();
    output.error.update(values, reference);
    ScoredBatch scored{.first = first, .samples = samples, .shape = exact[i].shape(), .output = values};
    scored.reference = reference;
    if (scored.shape.empty()) continue;
    const bool labelled = i == 0 && batch.labels.defined() && bits_of(batch.labels.type()) > 0;
    if (labelled) scored.label_shape = batch.labels.shape();
    const ClassAxis axis = class_axis(scored);
    if (axis.classes < 2) continue;
    started(output.agreement, "agreement").add(scored);
    if (!labelled) continue;
    const std::vector<int64_t> labels = is_real(batch.labels.type()) ? std::vector<int64_t>() : batch.labels.to_int64();
    const auto is_class = [&](int64_t label) { return label == kIgnoredLabel || (label >= 0 && label < axis.classes); };
    output.labels_fit &= std::ssize(labels) == axis.rows() && std::ranges::all_of(labels, is_class);
    if (!output.labels_fit) continue;
    scored.labels = labels;
    started(output.top1, "top1").add(scored);
    scored.output = reference;
    started(output.float_top1, "top1").add(scored);
  }
}

std::vector<OutputDebug> OutputWatch::finish() const {
  std::vector<OutputDebug> result;
  for (const Output& output : outputs_) {
    result.push_back({.name = output.name,
                      .error = output.error,
                      .agreement = value_of(output.agreement),
                      .top1 = output.labels_fit ? value_of(output.top1) : std::nullopt,
                      .float_top1 = output.labels_fit ? value_of(output.float_top1) : std::nullopt});
  }
  return result;
}

}  // namespace kaon
