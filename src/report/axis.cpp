#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace kaon {

namespace {

constexpr double kHuge = 1e300;  // differences of numbers up to here are finite

std::string superscript(int exponent) {
  static constexpr std::array<const char*, 10> kDigits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out;
  for (const char c : std::to_string(exponent)) out += c == '-' ? "⁻" : kDigits[static_cast<size_t>(c - '0')];
  return out;
}

std::string with_minus(double value, const std::string& text) { return value < 0 ? "−" + text : text; }

std::string trimmed(std::string text) {
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

int decade(double positive) { return static_cast<int>(std::floor(std::log10(positive))); }

std::string power_of_ten(int exponent) {
  if (exponent >= -3 && exponent < 15) return short_number(std::pow(10.0, exponent));
  return "10" + superscript(exponent);
}

}  // namespace

std::string short_number(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "−∞" : "∞";
  if (value == 0) return "0";
  if (std::abs(value) >= 1000 && std::abs(value) < 99999.5)
    return with_minus(value, fmt::format("{:.0f}", std::abs(value)));
  // Rounded first: what follows must not see 999.9 where 1000 is shown.
  const double size = std::strtod(fmt::format("{:.{}e}", std::abs(value), digits - 1).c_str(), nullptr);
  const int exponent = decade(size);
  if (exponent < -3 || exponent >= 15) {
    const std::string mantissa = fmt::format("{:.{}e}", size, digits - 1);
    const std::string shown = trimmed(mantissa.substr(0, mantissa.find('e')));
    const int power = std::atoi(mantissa.c_str() + mantissa.find('e') + 1);
    return with_minus(value, (shown == "1" ? "" : shown + "·") + "10" + superscript(power));
  }
  const auto decimals = [&](double scaled) {
    return trimmed(fmt::format("{:.{}f}", scaled, std::max(0, digits - 1 - decade(scaled))));
  };
  if (exponent < 5) return with_minus(value, decimals(size));
  static constexpr std::array<const char*, 4> kSuffixes = {" k", " M", " G", " T"};
  const int thousands = exponent / 3;
  return with_minus(value,
                    decimals(size / std::pow(1000.0, thousands)) + kSuffixes[static_cast<size_t>(thousands - 1)]);
}

std::vector<Tick> nice_ticks(double low, double high, int wanted) {
  if (!(high > low) || !std::isfinite(high - low)) return {};
  const double rough = (high - low) / std::max(wanted, 1);
  const double base = std::pow(10.0, decade(rough));
  if (!(base > 0)) return {};
  double step = 10 * base;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * base >= rough * 0.999) {
      step = factor * base;
      break;
    }
  }
  const double first = std::ceil(low / step - 1e-9);
  const double last = std::floor(high / step + 1e-9);
  std::vector<Tick> ticks;
  if (!(last - first < 1000)) return ticks;
  const double largest = std::max(std::abs(low), std::abs(high));
  const bool plain = largest < 1e5 && step >= 1e-4;
  int decimals = std::max(0, -decade(step * 1.0001));
  if (std::abs(step / std::pow(10.0, -decimals) - std::round(step / std::pow(10.0, -decimals))) > 1e-6) ++decimals;
  const int digits = std::clamp(decade(largest) - decade(step) + 2, 2, 15);
  for (double k = first; k <= last; ++k) {
    const double value = k == 0 ? 0 : k * step;
    ticks.push_back({value, plain
                                ? with_minus(value, fmt::format("{:.{}f}", std::abs(value), value == 0 ? 0 : decimals))
                                : short_number(value, digits)});
  }
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int wanted) {
  if (!(low > 0) || !(high > low) || !std::isfinite(high)) return {};
  const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  std::vector<Tick> ticks;
  if (last - first < 2) {
    for (int e = first - 1; e <= last; ++e) {
      for (const int factor : {1, 2, 5}) {
        const double value = factor * std::pow(10.0, e);
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push_back({value, short_number(value)});
      }
    }
    return ticks.size() >= 2 ? ticks : nice_ticks(low, high, wanted);
  }
  const int stride =
      std::max(1, static_cast<int>(std::ceil((last - first + 1) / static_cast<double>(std::max(wanted, 1)))));
  for (int e = first; e <= last; ++e) {
    const bool named = ((e % stride) + stride) % stride == 0;
    ticks.push_back({std::pow(10.0, e), named ? power_of_ten(e) : std::string()});
  }
  return ticks;
}

Axis::Axis(Kind kind, double low, double high, double start, double end)
    : kind_(kind), low_(low), high_(high), start_(start), end_(end) {
  if (std::isnan(low_) || std::isnan(high_)) low_ = high_ = kind == Kind::Log ? 1 : 0;
  low_ = std::clamp(low_, -kHuge, kHuge);
  high_ = std::clamp(high_, -kHuge, kHuge);
  if (low_ > high_) std::swap(low_, high_);
  if (kind == Kind::Log) {
    if (!(high_ > 0)) high_ = 1;
    if (!(low_ > 0)) low_ = high_ / 1000;
    if (high_ < low_ * 1.01) {
      low_ /= 3;
      high_ *= 3;
    }
  } else if (high_ - low_ <= 1e-12 * std::max(std::abs(low_), std::abs(high_))) {
    const double around = low_ == 0 ? 1 : std::abs(low_) * 0.1;
    low_ -= around;
    high_ += around;
  }
}

double Axis::at(double value) const {
  const double v = std::clamp(value, low_, high_);
  const double share = kind_ == Kind::Log ? (std::log(v) - std::log(low_)) / (std::log(high_) - std::log(low_))
                                          : (v - low_) / (high_ - low_);
  return start_ + share * (end_ - start_);
}

std::vector<Tick> Axis::ticks(int wanted) const {
  return kind_ == Kind::Log ? log_ticks(low_, high_, wanted) : nice_ticks(low_, high_, wanted);
}

}  // namespace kaon
