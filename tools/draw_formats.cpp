// Draws docs/img/formats.svg: the values that some formats can represent, each stretched to the same maximum.
//   draw_formats FILE           writes it
//   draw_formats --check FILE   fails when FILE is not what would be written
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "numerics/quantize.h"

namespace {

constexpr double kWidth = 960, kLeft = 150, kRight = 850, kTop = 116, kRow = 46, kTick = 26;
constexpr double kReach = 1.16;  // the axis runs from -kReach to kReach times the format's maximum
constexpr double kSigmas = 4;    // the bell curve's standard deviations that the maximum stands for

double x_of(double value) { return kLeft + (value / kReach + 1) / 2 * (kRight - kLeft); }

kaon::QuantParams params(int64_t count, float scale) {
  const int64_t shape[] = {count};
  return {kaon::Tiling::per_tensor(shape), {scale}, {}};
}

/// Every finite value of an 8-bit or narrower format, ascending, in units of its maximum.
std::set<double> values(const kaon::Format& format) {
  const int count = 1 << format.bits;
  std::vector<std::byte> codes;
  for (int code = 0; code < count; ++code) {
    const bool negative = format.kind == kaon::FormatKind::Integer && format.is_signed && code >= count / 2;
    codes.push_back(static_cast<std::byte>(negative ? code - count : code));
  }
  std::vector<float> decoded(codes.size());
  kaon::dequantize(codes, decoded, format, params(count, 1));
  std::set<double> distinct;
  for (const float value : decoded) {
    if (std::isfinite(value)) distinct.insert(value / format.max());
  }
  return distinct;
}

/// What quantization leaves of a bell curve whose kSigmas-th standard deviation is the format's maximum, in dB.
double bell_sqnr(const kaon::Format& format) {
  constexpr int64_t kSteps = 1 << 16;
  std::vector<float> x(kSteps), y(kSteps);
  for (int64_t i = 0; i < kSteps; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(((static_cast<double>(i) + 0.5) / kSteps * 2 - 1) * kSigmas);
  }
  kaon::fake_quantize(x, y, format, params(kSteps, static_cast<float>(kSigmas / format.max())));
  double signal = 0, noise = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double v = x[i], error = static_cast<double>(y[i]) - v, density = std::exp(-v * v / 2);
    signal += density * v * v;
    noise += density * error * error;
  }
  return 10 * std::log10(signal / noise);
}

std::string text(double x, double y, const std::string& style, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, style, content);
}

std::string bell(double base, double height) {
  std::string path = fmt::format("M{:.1f} {:.1f}", x_of(-1), base);
  for (int i = -100; i <= 100; ++i) {
    const double value = i / 100.0, sigmas = value * kSigmas;
    path += fmt::format("L{:.1f} {:.1f}", x_of(value), base - height * std::exp(-sigmas * sigmas / 2));
  }
  return fmt::format("<path d=\"{}L{:.1f} {:.1f}Z\" fill=\"#94a3b8\" fill-opacity=\".28\"/>\n", path, x_of(1), base);
}

std::string row(const kaon::Format& format, double y) {
  const bool integer = format.kind == kaon::FormatKind::Integer;
  const auto ticks = values(format);
  std::string path;
  for (const double value : ticks) path += fmt::format("M{:.1f} {:.1f}v{}", x_of(value), y - kTick / 2, kTick);
  return text(24, y + 1, "class=\"name\"", format.name) +
         text(24, y + 15, "class=\"small\"", fmt::format("{} bits, {} values", format.bits, ticks.size())) +
         fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#e2e8f0\"/>\n", kLeft, y, kRight) +
         fmt::format("<path d=\"{}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", path, integer ? "#2563eb" : "#ea580c",
                     ticks.size() > 100 ? 0.8 : 1.6) +
         text(kWidth - 24, y + 4, "class=\"value\"", fmt::format("{:.1f} dB", bell_sqnr(format)));
}

std::string draw() {
  const std::vector<std::string> names{"int4", "fp4_e2m1", "fp6_e2m3", "fp6_e3m2", "int8", "fp8_e4m3", "fp8_e5m2"};
  const double bottom = kTop + kRow * static_cast<double>(names.size());
  const double height = bottom + 18;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"Helvetica, Arial, DejaVu Sans, sans-serif\">\n"
      "<style>.name{{font:bold 14px monospace;fill:#0f172a}}.small{{font-size:10.5px;fill:#64748b}}"
      ".value{{font-size:13px;fill:#0f172a;text-anchor:end}}.axis{{font-size:11px;fill:#64748b;text-anchor:middle}}"
      "</style>\n"
      "<rect x=\".5\" y=\".5\" width=\"{2}\" height=\"{3}\" rx=\"10\" fill=\"#fff\" stroke=\"#e2e8f0\"/>\n",
      kWidth, height, kWidth - 1, height - 1);
  svg += text(24, 32, "font-size=\"17\" font-weight=\"bold\" fill=\"#0f172a\"", "Every value a format has");
  svg += text(24, 51, "class=\"small\"", "stretched to one maximum") +
         text(24, 66, "class=\"small\"",
              "<tspan fill=\"#2563eb\" font-weight=\"bold\">integers</tspan>, "
              "<tspan fill=\"#ea580c\" font-weight=\"bold\">floats</tspan>");
  svg += text(kWidth - 24, 60, "class=\"small\" text-anchor=\"end\"", "SQNR of a") +
         text(kWidth - 24, 73, "class=\"small\" text-anchor=\"end\"", "bell curve");
  svg += bell(kTop - 32, 62);
  svg += text(x_of(0.36), 50, "class=\"small\"", fmt::format("a bell curve, the maximum at {}σ", kSigmas));
  for (size_t i = 0; i < names.size(); ++i) {
    svg += row(kaon::format(names[i]), kTop + kRow * static_cast<double>(i));
  }
  const std::vector<std::pair<double, std::string>> marks{
      {-1, "−max"}, {-0.5, "−½ max"}, {0, "0"}, {0.5, "½ max"}, {1, "max"}};
  for (const auto& [value, label] : marks) svg += text(x_of(value), bottom - 4, "class=\"axis\"", label);
  return svg + "</svg>\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool check = arguments.size() == 2 && arguments[0] == "--check";
  if (arguments.size() != 1 && !check) {
    std::cerr << "usage: draw_formats [--check] FILE\n";
    return 2;
  }
  if (!check) return (std::ofstream(arguments[0], std::ios::binary) << draw()).flush() ? 0 : 1;
  std::ifstream file(arguments[1], std::ios::binary);
  if (std::string(std::istreambuf_iterator<char>(file), {}) == draw()) return 0;
  std::cerr << arguments[1] << " is out of date: run draw_formats on it\n";
  return 1;
}
