#include <algorithm>
#include <cmath>

#include "debug/debug_report.h"

namespace kaon {
namespace {

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double relative(const ErrorMetrics& metrics) {
  if (metrics.sum_squared_error == 0) return 0;
  return std::sqrt(metrics.sum_squared_error / metrics.reference_energy);
}

/// The median of a number of the channels over those where it is not 0; 0 where it always is.
template <typename Get>
double median(const std::vector<ChannelStats>& channels, const Get& get) {
  std::vector<double> alive;
  for (const ChannelStats& channel : channels) {
    if (get(channel) > 0) alive.push_back(get(channel));
  }
  if (alive.empty()) return 0;
  const auto middle = alive.begin() + std::ssize(alive) / 2;
  std::nth_element(alive.begin(), middle, alive.end());
  return alive.size() % 2 == 1 ? *middle : (*middle + *std::max_element(alive.begin(), middle)) / 2;
}

double median_absmax(const std::vector<ChannelStats>& channels) {
  return median(channels, [](const ChannelStats& channel) { return channel.absmax(); });
}

}  // namespace

double QuantizerDebug::clipped() const { return share(clips.clipped, io.count); }
double QuantizerDebug::zeroed() const { return share(clips.zeroed, clips.nonzero); }
double QuantizerDebug::clip_error() const {
  return io.count == 0 ? 0 : clips.clip_squared_error / static_cast<double>(io.count);
}
double QuantizerDebug::round_error() const {
  return io.count == 0 ? 0 : clips.round_squared_error / static_cast<double>(io.count);
}

double QuantizerDebug::channel_imbalance() const {
  const double median = median_absmax(channels);
  return median == 0 ? 1 : input.absmax() / median;
}

std::vector<int64_t> QuantizerDebug::outlier_channels() const {
  const double limit = kOutlierFactor * median_absmax(channels);
  std::vector<int64_t> found;
  for (size_t i = 0; i < channels.size(); ++i) {
    if (channels[i].absmax() > limit) found.push_back(static_cast<int64_t>(i));
  }
  return found;
}

double QuantizerDebug::outlier_range() const {
  const double limit = kOutlierFactor * median_absmax(channels);
  float others = 0;
  for (const ChannelStats& channel : channels) {
    if (channel.absmax() <= limit) others = std::max(others, channel.absmax());
  }
  return input.absmax() == 0 ? 0 : 1 - static_cast<double>(others) / input.absmax();
}

double QuantizerDebug::local_error() const { return relative(local); }
double QuantizerDebug::cumulative_error() const { return relative(ref_output); }

double QuantizerDebug::own_share() const {
  const double all = cumulative_error();
  const double own = local_error();
  return all == 0 ? 1 : std::min(1.0, own * own / (all * all));
}

double QuantizerDebug::channel_error() const {
  const double loud = kDeadEnergy * median(channels, [](const ChannelStats& channel) { return channel.energy; });
  double sum = 0;
  int64_t alive = 0;
  for (const ChannelStats& channel : channels) {
    if (channel.energy == 0 || channel.energy < loud) continue;
    sum += channel.squared_error / channel.energy;
    ++alive;
  }
  return alive == 0 ? relative(io) : std::sqrt(sum / static_cast<double>(alive));
}

int64_t QuantizerDebug::non_finite() const { return std::max(input.non_finite.total(), ref_input.skipped); }

const OutputDebug* DebugReport::worst_output() const {
  const OutputDebug* worst = nullptr;
  for (const OutputDebug& output : outputs) {
    if (output.error.count == 0) continue;
    if (worst == nullptr || output.error.sqnr_db() < worst->error.sqnr_db()) worst = &output;
  }
  return worst;
}

std::vector<const DebugRow*> DebugReport::in_order() const {
  std::vector<const DebugRow*> ordered;
  for (const DebugRow& row : rows) ordered.push_back(&row);
  std::sort(ordered.begin(), ordered.end(), [](const DebugRow* a, const DebugRow* b) { return a->order < b->order; });
  return ordered;
}

}  // namespace kaon
