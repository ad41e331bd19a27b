#include "api/info.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/context.h"
#include "cli/table.h"
#include "cli/verb.h"
#include "graph/describe.h"

namespace kaon {

namespace {

void print_values(std::ostream& out, const char* title, const std::vector<ValueInfo>& values) {
  for (const ValueInfo& value : values) out << fmt::format("{:<8}{}: {}\n", title, value.name, describe(value));
}

void print_info(std::ostream& out, const ModelInfo& info) {
  out << fmt::format("{}, opset {}, {} parameters, {}\n", info.format, info.opset, info.parameters,
                     human_bytes(static_cast<double>(info.bytes)));
  if (info.language_model) {
    const lm::Facts& f = info.language_model->facts;
    out << fmt::format("{}: {} blocks, width {}, {} heads of {} ({} for keys), inner width {}, vocabulary {}{}\n",
                       info.language_model->family, f.layers, f.width, f.heads, f.head_width, f.kv_heads, f.inner_width,
                       f.vocabulary, f.tied ? ", tied head" : "");
    out << fmt::format("running {} tokens takes about {}\n", info.language_model->window,
                       human_bytes(static_cast<double>(info.language_model->memory_bytes)));
  }
  print_values(out, "input", info.inputs);
  print_values(out, "output", info.outputs);

  std::vector<std::pair<std::string, int64_t>> ops(info.ops.begin(), info.ops.end());
  std::ranges::stable_sort(ops, std::greater<>(), &std::pair<std::string, int64_t>::second);
  std::string line = "ops";
  for (const auto& [op, count] : ops) line += fmt::format("{}{} {}", line == "ops" ? "     " : ", ", count, op);
  out << line << '\n';

  if (!info.layers.empty()) {
    Table table({{"layer"}, {"op"}, {"weight"}, {"tensor"}, {"slots"}});
    for (const Layer& layer : info.layers) {
      std::string slots;
      for (const Slot slot : layer.slots()) slots += fmt::format("{}{}", slots.empty() ? "" : " ", name_of(slot));
      table.add_row({layer.name, layer.op, to_string(layer.weight_shape), layer.weight, slots});
    }
    out << '\n';
    table.print(out);
  }
  if (!info.unsupported.empty()) out << "\nThe engine cannot run\n";
  for (const std::string& node : info.unsupported) out << "  " << node << '\n';
}

}  // namespace

void register_info(Registry<Verb>& verbs) {
  verbs.add(
      "info",
      {.group = "Models",
       .summary = "what a model holds: inputs, outputs, ops, layers, what cannot run",
       .examples = {"kaon info model.onnx", "kaon info model.onnx --json"},
       .declare = [](CLI::App& app) {
         auto model = std::make_shared<std::string>();
         app.add_option("MODEL", *model, "an .onnx file, the folder of a language model, or a .gguf file")->required();
         return [model](Context& context) {
           const ModelInfo info = inspect_model(*model);
           context.result(to_json(info), [&](std::ostream& out) { print_info(out, info); });
         };
       }});
}

}  // namespace kaon
