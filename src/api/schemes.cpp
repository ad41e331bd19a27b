#include "api/schemes.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "export/export.h"
#include "io/quantized/quark.h"
#include "io/quantized/transposed.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

/// Whether a language model's layers can be stored so.
bool folder_holds(const LayerRule& rule) try {
  compressed_tensors::format_for(rule.weight.spec->tensor_spec(0), rule.input.spec.has_value(), "");
  return true;
} catch (const Error&) {
  return false;
}

constexpr int64_t kAnySize = 1024;

bool quark_holds(const LayerRule& rule) try {
  quark::check(rule.weight.spec->tensor_spec(0), kAnySize, kAnySize, "");
  return true;
} catch (const Error&) {
  return false;
}

bool transposed_holds(transposed::Method method, const LayerRule& rule) try {
  transposed::check(method, rule.weight.spec->tensor_spec(0), kAnySize, kAnySize, "");
  return !rule.input.spec;
} catch (const Error&) {
  return false;
}

std::string text_of(const SlotRule& slot) { return slot.spec ? describe(*slot.spec) : ""; }

}  // namespace

std::vector<SchemeInfo> list_schemes() {
  std::vector<SchemeInfo> infos;
  for (const auto& [name, scheme] : schemes().items()) {
    SchemeInfo info;
    info.name = name;
    info.summary = scheme.summary;
    info.strategy = enum_name(strategy_of(scheme.rule));
    info.weight = text_of(scheme.rule.weight);
    info.input = text_of(scheme.rule.input);
    info.output = text_of(scheme.rule.output);
    info.bias = scheme.rule.bias.spec ? "int32, input scale · weight scale" : "";
    info.needs_data = strategy_of(scheme.rule) == Strategy::Static;
    if (onnx_has(format(scheme.rule.weight.spec->format))) info.exports.emplace_back("onnx");
    if (folder_holds(scheme.rule)) info.exports.emplace_back("compressed-tensors");
    if (transposed_holds(transposed::Method::Awq, scheme.rule)) info.exports.emplace_back("awq");
    if (transposed_holds(transposed::Method::Gptq, scheme.rule)) info.exports.emplace_back("gptq");
    if (quark_holds(scheme.rule)) info.exports.emplace_back("quark");
    infos.push_back(std::move(info));
  }
  return infos;
}

nlohmann::ordered_json to_json(const std::vector<SchemeInfo>& schemes) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  auto rows = nlohmann::ordered_json::array();
  for (const SchemeInfo& info : schemes) {
    rows.push_back({{"name", info.name},
                    {"summary", info.summary},
                    {"strategy", info.strategy},
                    {"weight", or_null(info.weight)},
                    {"input", or_null(info.input)},
                    {"output", or_null(info.output)},
                    {"bias", or_null(info.bias)},
                    {"needs_data", info.needs_data},
                    {"exports", info.exports}});
  }
  return rows;
}

}  // namespace kaon
