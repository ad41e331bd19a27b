#include "debug/reading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

namespace kaon {
namespace {

constexpr double kManyZeroed = 0.2;
constexpr double kHeavyTail = 30;    // kurtosis; 3 for a normal distribution, 6 for a Laplace one
constexpr double kBigShare = 0.25;   // of the range
constexpr double kBigShift = 0.02;   // of the standard deviation
constexpr double kFineError = 0.03;  // about 30 dB
constexpr double kBigEffect = 0.05;  // of the outputs' error
constexpr size_t kNamed = 4;         // outlier channels, the loudest

std::string percent(double share) {
  const double value = 100 * share;
  if (value >= 9.95) return fmt::format("{:.0f} %", value);
  return value >= 0.095 ? fmt::format("{:.1f} %", value) : fmt::format("{:.2g} %", value);
}

const char* channel_word(const QuantizerDebug& quantizer) {
  switch (quantizer.kind) {
    case Slot::Input: return "input channels";
    case Slot::Output: return "output channels";
    default: return "output channels of the weight";
  }
}

class Findings {
 public:
  explicit Findings(const QuantizerDebug& quantizer) : quantizer_(quantizer) {}

  std::string run() {
    non_finite();
    if (quantizer_.io.count == 0) return join("saw no data");
    effect();
    clipping();
    outliers();
    zeroed();
    tail();
    shift();
    inherited();
    return join("");
  }

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> format, Args&&... args) {
    words_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  /// One range for many channels: then they compete for it.
  bool shares_range() const {
    const Format& f = format(quantizer_.format);
    if (f.kind == FormatKind::Block || is_cast(f)) return false;
    return quantizer_.scale.size() == 1 || (quantizer_.dynamic && quantizer_.scale.empty());
  }

  void non_finite() {
    if (quantizer_.non_finite() > 0) say("{} values are NaN or Inf", quantizer_.non_finite());
  }

  void effect() {
    if (quantizer_.output_gain.value_or(0) < kBigEffect) return;
    say("{} of the error of the model's outputs goes when this alone is off", percent(*quantizer_.output_gain));
  }

  void clipping() {
    const double part = quantizer_.io.mse() > 0 ? quantizer_.clip_error() / quantizer_.io.mse() : 0;
    if (quantizer_.clips.clipped == 0 || (part < 0.1 && quantizer_.clipped() < 0.01)) return;
    std::string range;
    if (quantizer_.representable) {
      range = fmt::format(" at [{:.4g}, {:.4g}], values reach [{:.4g}, {:.4g}]", quantizer_.representable->min,
                          quantizer_.representable->max, quantizer_.input.min, quantizer_.input.max);
    }
    say("{} of the values are clipped{}: {} of the squared error", percent(quantizer_.clipped()), range, percent(part));
  }

  void outliers() {
    if (!shares_range()) return;
    std::vector<int64_t> loud = quantizer_.outlier_channels();
    const auto count = std::ssize(loud);
    if (count == 0 || quantizer_.outlier_range() < kBigShare) return;
    std::ranges::stable_sort(loud, std::ranges::greater(),
                             [&](int64_t i) { return quantizer_.channels[static_cast<size_t>(i)].absmax(); });
    loud.resize(std::min(loud.size(), kNamed));
    const std::string more = count > std::ssize(loud) ? fmt::format(" and {} more", count - std::ssize(loud)) : "";
    say("{} of {} {} ({}{}) {} {} of the range", count, quantizer_.channels.size(), channel_word(quantizer_),
        fmt::join(loud, ", "), more, count == 1 ? "holds" : "hold", percent(quantizer_.outlier_range()));
  }

  void zeroed() {
    if (quantizer_.zeroed() >= kManyZeroed) say("{} of the values become 0", percent(quantizer_.zeroed()));
  }

  void tail() {
    if (quantizer_.kind == Slot::Bias || quantizer_.kurtosis() < kHeavyTail) return;
    say("heavy tails: the largest value is {:.0f} standard deviations out (kurtosis {:.0f})",
        std::max(quantizer_.input.max - quantizer_.input.mean, quantizer_.input.mean - quantizer_.input.min) /
            quantizer_.input.stddev(),
        quantizer_.kurtosis());
  }

  void shift() {
    const double shift = quantizer_.input.stddev() > 0 ? quantizer_.bias_shift() / quantizer_.input.stddev() : 0;
    if (std::fabs(shift) < kBigShift) return;
    say("the mean moves {} by {} of the standard deviation", shift > 0 ? "up" : "down", percent(std::fabs(shift)));
  }

  void inherited() {
    const double local = quantizer_.local_error();
    const double all = quantizer_.cumulative_error();
    if (all < kFineError || all < 2 * local) return;
    const double weight = quantizer_.weight_share();
    const double before = quantizer_.inherited_share();
    if (weight > 0.1) say("{} of the error at this place comes from the weight of its own layer", percent(weight));
    if (before > 0.1) say("{} of the error at this place comes from layers before it", percent(before));
  }

  std::string join(const std::string& nothing) const {
    std::string text;
    for (const std::string& word : words_) text += (text.empty() ? "" : "; ") + word;
    if (!text.empty()) return text;
    if (!nothing.empty()) return nothing;
    if (quantizer_.io.sum_squared_error == 0) return "exact";
    if (quantizer_.channel_error() < kFineError) return fmt::format("fine: {:.1f} dB", quantizer_.io.sqnr_db());
    return fmt::format("coarse: rounding moves a typical channel by {}", percent(quantizer_.channel_error()));
  }

  const QuantizerDebug& quantizer_;
  std::vector<std::string> words_;
};

}  // namespace

std::string read_quantizer(const QuantizerDebug& quantizer) { return Findings(quantizer).run(); }

}  // namespace kaon
