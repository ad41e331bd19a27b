#include "api/train.h"

#include <nlohmann/json.hpp>

#include "api/fashion_mnist.h"
#include "api/output_file.h"
#include "base/error.h"
#include "io/onnx/onnx.h"
#include "nn/models.h"
#include "nn/parameters.h"

namespace kaon {

TrainReport train_model(const TrainCall& call) {
  if (call.output.extension() != ".onnx") {
    fail(ErrorCode::InvalidConfig, call.output.string(), "the file to write must end in .onnx");
  }
  check_output(call.output);
  nn::TrainOptions options = nn::recipes().get(call.recipe)(call.model);
  if (call.epochs != 0) options.epochs = call.epochs;
  options.seed = call.seed;
  options.progress = call.progress;
  const Model model = nn::models().get(call.model)(call.seed);
  const FashionMnist images(call.data);
  const auto training = images.open(Split::Train, model.graph, call.limit);
  const auto test = images.open(Split::Test, model.graph);
  nn::TrainResult result = nn::train(model, *training, test.get(), options);

  TrainReport report{call.model, call.recipe, result.epochs, *result.test, result.seconds, call.output, call.output};
  report.parameters.replace_extension(".safetensors");
  result.model.metadata.emplace_back("classes", fmt::format("{}", fmt::join(kFashionClasses, ",")));
  make_folder_of(report.file);
  write_onnx(result.model, report.file);
  nn::save_parameters(result.model, report.parameters);
  return report;
}

nlohmann::ordered_json to_json(const TrainReport& report) {
  nlohmann::ordered_json history = nlohmann::ordered_json::array();
  for (const nn::Epoch& epoch : report.epochs) history.push_back({{"loss", epoch.loss}, {"accuracy", epoch.accuracy}});
  return {{"model", report.model},     {"recipe", report.recipe},        {"accuracy", report.test.accuracy},
          {"loss", report.test.loss},  {"epochs", report.epochs.size()}, {"history", history},
          {"seconds", report.seconds}, {"file", report.file.string()},   {"parameters", report.parameters.string()}};
}

}  // namespace kaon
