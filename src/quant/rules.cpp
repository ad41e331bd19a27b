#include "quant/rules.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "quant/schemes.h"

namespace kaon {
namespace {

constexpr Slot kSlots[] = {Slot::Input, Slot::Output, Slot::Weight, Slot::Bias};

/// What `matches` picks of the layers and operators; throws where that is none.
struct Matched {
  bool layers = false;
  bool operators = false;

  template <typename Matches>
  Matched(const std::string& key, std::string Subject::*field, const std::string& pattern,
          const std::vector<Subject>& all_layers, const std::vector<Subject>& all_operators, const Matches& matches)
      : layers(std::ranges::any_of(all_layers, matches)), operators(std::ranges::any_of(all_operators, matches)) {
    if (layers || operators) return;
    std::vector<std::string> names;
    for (const auto* subjects : {&all_layers, &all_operators}) {
      for (const Subject& subject : *subjects) names.push_back(subject.*field);
    }
    const std::string near = nearest(pattern, names);
    fail(ErrorCode::InvalidConfig, key, "'{}' matches no layer of this model; {}", pattern,
         near.empty() ? "`kaon info` lists them" : "did you mean '" + near + "'?");
  }
};

/// Operators between layers have an output alone: what they read is quantized by what makes it.
void expect_output_alone(const LayerRule& rule, const Matched& matched, const std::string& where) {
  if (matched.layers) return;
  for (const Slot slot : {Slot::Input, Slot::Weight, Slot::Bias}) {
    if (rule.at(slot).given) {
      fail(ErrorCode::InvalidConfig, where, "only layers have a rule for '{}'; an operator between them has 'output'",
           name_of(slot));
    }
  }
}

/// What `global` says of an embedding: it has rows to look up, and no operator looks up 4-bit ones or blocks, so all
/// narrow integers become 8-bit ones. Where activations are static, tables stay float unless a rule asks for them.
LayerRule table_rule(const LayerRule& global, const Layer& layer) {
  constexpr int64_t kFewestNumbers = 256;  // what is added to a file costs as much as smaller tables save
  LayerRule rule;
  if (!global.weight.spec || strategy_of(global) == Strategy::Static) return rule;
  if (element_count(layer.weight_shape) < kFewestNumbers) return rule;
  Spec spec = *global.weight.spec;
  const Format& own = format(spec.format);
  if (own.kind == FormatKind::Block || (own.kind == FormatKind::Float && !is_cast(own))) return rule;
  if (own.kind == FormatKind::Integer && (own.bits < 8 || spec.granularity == Granularity::PerGroup)) {
    spec = Spec{};
    spec.granularity = Granularity::PerChannel;
  }
  rule.weight = spec;
  return rule;
}

}  // namespace

const std::vector<std::string>& layer_types() {
  static const std::vector<std::string> types = {"Conv",   "ConvTranspose", "Gemm", "MatMul",
                                                 "Gather", "LSTM",          "GRU",  "RNN"};
  return types;
}

Rules::Rules(const Config& config, const std::vector<Layer>& layers, const std::vector<Subject>& operators)
    : config_(config) {
  std::vector<Subject> subjects;
  for (const Layer& layer : layers) subjects.push_back({layer.name, layer.op});
  for (const auto& [type, rule] : config.by_type) {
    const Matched matched("by_type", &Subject::op, type, subjects, operators,
                          [&, &wanted = type](const Subject& subject) { return subject.op == wanted; });
    expect_output_alone(rule, matched, "by_type: " + type);
  }
  const auto by_glob = [&](const char* key, const std::string& pattern) {
    return Matched(key, &Subject::name, pattern, subjects, operators,
                   [&](const Subject& subject) { return glob_match(pattern, subject.name); });
  };
  for (const auto& [pattern, rule] : config.by_name) {
    expect_output_alone(rule, by_glob("by_name", pattern), "by_name: " + pattern);
  }
  for (const std::string& pattern : config.exclude) by_glob("exclude", pattern);
}

Ruling Rules::of(const Layer& layer) const {
  Ruling ruling;
  const bool table = layer.op == "Gather";
  ruling.rule = table ? table_rule(config_.global, layer) : config_.global;
  const std::string text = config_.scheme.empty() ? "global" : "scheme " + config_.scheme;
  for (const Slot slot : kSlots) {
    if (ruling.rule.at(slot).given) ruling.origin[slot] = {Origin::Row::Global, text};
  }
  return applied({layer.name, layer.op}, std::move(ruling), table);
}

Ruling Rules::of(const Subject& subject, const Spec& output, const Origin* origin) const {
  Ruling ruling;
  ruling.rule.output = output;
  if (origin != nullptr) ruling.origin[Slot::Output] = *origin;
  ruling = applied(subject, std::move(ruling), true);
  if (!ruling.origin.contains(Slot::Output)) ruling.rule.output = {};
  ruling.rule.input = ruling.rule.weight = ruling.rule.bias = {};
  return ruling;
}

/// Where a slot `starts_float`, a rule that names no format is about others that its pattern matches.
Ruling Rules::applied(const Subject& subject, Ruling ruling, bool starts_float) const {
  for (const std::string& pattern : config_.exclude) {
    if (glob_match(pattern, subject.name)) return {.excluded = true};
  }
  const auto apply = [&](LayerRule over, Origin::Row row, const std::string& text) {
    for (const Slot slot : kSlots) {
      SlotRule& said = over.at(slot);
      const bool names_format = said.keys.empty() || said.keys.contains("format");
      const bool is_float = !ruling.rule.at(slot).spec || !ruling.origin.contains(slot);
      if (starts_float && said.spec && !names_format && is_float) said = {};
      if (said.given) ruling.origin[slot] = {row, text};
    }
    merge(over, ruling.rule, text);
  };
  for (const auto& [type, over] : config_.by_type) {
    if (type == subject.op) apply(over, Origin::Row::Type, "by_type: " + type);
  }
  for (const auto& [pattern, over] : config_.by_name) {
    if (glob_match(pattern, subject.name)) apply(over, Origin::Row::Name, "by_name: " + pattern);
  }
  return ruling;
}

}  // namespace kaon
