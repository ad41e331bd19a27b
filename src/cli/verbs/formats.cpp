#include "api/formats.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

std::string number(double value) {
  return std::fabs(value) < 1e10 && value == std::floor(value) ? fmt::format("{:.0f}", value)
                                                               : fmt::format("{:.6g}", value);
}

/// "e4m3 bias 7"; empty for integers.
std::string layout(const FormatInfo& info) {
  if (!info.exponent_bits) return "";
  return fmt::format("e{}m{} bias {}", *info.exponent_bits, *info.mantissa_bits, *info.bias);
}

std::string block(const FormatInfo& info) {
  return info.block ? fmt::format("{} x {}, {} scale", *info.block, *info.element, *info.scale) : "";
}

void print_formats(std::ostream& out, const std::vector<FormatInfo>& formats) {
  using Align = Table::Align;
  Table table({{"format"},
               {"bits", Align::Right},
               {"kind"},
               {"min", Align::Right},
               {"max", Align::Right},
               {"smallest", Align::Right},
               {"layout"},
               {"block"},
               {"onnx type", Align::Right}});
  for (const FormatInfo& info : formats) {
    table.add_row({info.name, std::to_string(info.bits), info.kind, number(info.min), number(info.max),
                   number(info.smallest), layout(info), block(info),
                   info.onnx_type ? std::to_string(*info.onnx_type) : ""});
  }
  table.print(out);
}

}  // namespace

void register_formats(Registry<Verb>& verbs) {
  verbs.add("formats", {.group = "Reference",
                        .summary = "every number format: range, precision, block, ONNX type",
                        .examples = {"kaon formats", "kaon formats --json"},
                        .declare = [](CLI::App&) {
                          return [](Context& context) {
                            const auto formats = list_formats();
                            context.result(to_json(formats), [&](std::ostream& out) { print_formats(out, formats); });
                          };
                        }});
}

}  // namespace kaon
