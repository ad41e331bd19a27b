#include "api/train.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/training_flags.h"
#include "cli/verb.h"

namespace kaon {

namespace {

void print_report(std::ostream& out, const TrainReport& report) {
  using Align = Table::Align;
  Table table({{"epoch", Align::Right}, {"loss", Align::Right}, {"accuracy", Align::Right}});
  for (size_t i = 0; i < report.epochs.size(); ++i) {
    table.add_row({std::to_string(i + 1), fmt::format("{:.4f}", report.epochs[i].loss),
                   fmt::format("{:.4f}", report.epochs[i].accuracy)});
  }
  table.add_row({"test", fmt::format("{:.4f}", report.test.loss), fmt::format("{:.4f}", report.test.accuracy)});
  table.print(out);
  out << fmt::format("{}, trained in {:.1f} s -> {}, {}\n", report.model, report.seconds, report.file.string(),
                     report.parameters.string());
}

}  // namespace

void register_train(Registry<Verb>& verbs) {
  verbs.add("train", {.group = "Models",
                      .summary = "train a small network on Fashion-MNIST",
                      .examples = {"kaon train --model mlp -o model.onnx",
                                   "kaon train --model cnn --epochs 2 --seed 7 -o cnn.onnx",
                                   "kaon train --recipe tutorial --data fashion-mnist -o model.onnx"},
                      .declare = [](CLI::App& app) {
                        auto call = std::make_shared<TrainCall>();
                        app.add_option("-o,--output", call->output,
                                       "the .onnx file to write; its parameters go to .safetensors beside it")
                            ->required()
                            ->type_name("OUT");
                        declare_training_flags(app, *call);
                        return [call](Context& context) {
                          check_training_flags(*call);
                          call->seed = context.seed();
                          call->progress = &context.progress();
                          const TrainReport report = train_model(*call);
                          context.result(to_json(report), [&](std::ostream& out) { print_report(out, report); });
                        };
                      }});
}

}  // namespace kaon
