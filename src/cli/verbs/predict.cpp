#include "api/predict.h"

#include <CLI/App.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

std::string in_words(const std::vector<Guess>& guesses) {
  std::string text;
  for (const Guess& guess : guesses) {
    text += fmt::format("{}{} {:.1f} %", text.empty() ? "" : ", ", guess.name, guess.probability * 100);
  }
  return text;
}

void print_predictions(std::ostream& out, const std::vector<Prediction>& predictions, const PredictCall& call) {
  Table table({{"image"}, {"model"}, {"likeliest"}});
  for (const Prediction& prediction : predictions) {
    table.add_row({prediction.image, call.model.filename().string(), in_words(prediction.guesses)});
    if (!prediction.with_guesses.empty()) {
      table.add_row({"", call.with.filename().string(), in_words(prediction.with_guesses)});
    }
  }
  table.print(out);
}

}  // namespace

void register_predict(Registry<Verb>& verbs) {
  verbs.add("predict", {.group = "Models",
                        .summary = "name what is on pictures, with one model or two side by side",
                        .examples = {"kaon predict model.onnx shirt.png shoe.png --with model.w8a8c.onnx"},
                        .declare = [](CLI::App& app) {
                          auto call = std::make_shared<PredictCall>();
                          app.add_option("MODEL", call->model, "the .onnx file of an image classifier")->required();
                          app.add_option("IMAGE", call->images, "JPEG or PNG files of any size")->required();
                          app.add_option("--with", call->with, "a second model to ask")->type_name("MODEL");
                          app.add_option("--classes", call->classes,
                                         "a file with one class a line (default: the model's own names)")
                              ->type_name("F");
                          return [call](Context& context) {
                            const std::vector<Prediction> predictions = predict(*call);
                            context.result(to_json(predictions),
                                           [&](std::ostream& out) { print_predictions(out, predictions, *call); });
                          };
                        }});
}

}  // namespace kaon
