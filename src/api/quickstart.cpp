#include "api/quickstart.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "api/debug.h"
#include "api/fashion_mnist.h"
#include "api/train.h"
#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/stopwatch.h"
#include "debug/debug_model.h"
#include "engine/engine.h"
#include "eval/evaluate.h"
#include "export/export.h"
#include "io/onnx/onnx.h"
#include "quant/describe.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"
#include "report/charts.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCalibrationImages = 512;
constexpr int64_t kDebugImages = 256;
constexpr int64_t kShownImages = 24;
constexpr const char* kDebugged = "w8a8c";
const std::vector<std::string> kSchemes = {"w8", "w8a8c", "w8a8d", "w4g32", "fp8", "mxfp4"};

Picture picture_of(const Batch& batch, int64_t index) {
  Picture picture{.width = 28, .height = 28};
  const std::span<const float> pixels = batch.inputs.begin()->second.as<float>();
  for (const float value : pixels.subspan(static_cast<size_t>(index) * 28 * 28, 28 * 28)) {
    picture.pixels.push_back(static_cast<uint8_t>(std::lround(value * 255)));
  }
  picture.caption = kFashionClasses[static_cast<size_t>(batch.labels.as<int64_t>()[static_cast<size_t>(index)])];
  return picture;
}

void show_samples(const Dataset& data, const fs::path& path) {
  const int64_t count = std::min(kShownImages, data.size());
  const Batch batch = data.read(0, count);
  ImageGrid grid{.title = "Fashion-MNIST", .subtitle = "the first test images and their classes", .columns = 8};
  for (int64_t i = 0; i < count; ++i) grid.pictures.push_back(picture_of(batch, i));
  draw_images(grid, path);
}

void show_training(const TrainReport& report, const fs::path& path) {
  Curve loss{.name = "loss"};
  Curve accuracy{.name = "accuracy"};
  for (size_t i = 0; i < report.epochs.size(); ++i) {
    for (Curve* curve : {&loss, &accuracy}) curve->x.push_back(static_cast<double>(i + 1));
    loss.y.push_back(report.epochs[i].loss);
    accuracy.y.push_back(report.epochs[i].accuracy);
  }
  draw_curves({.title = "training " + report.model,
               .subtitle = fmt::format("test accuracy {:.2f} %", report.test.accuracy * 100),
               .x_label = "epoch",
               .y_label = "mean over the training images",
               .curves = {loss, accuracy}},
              path);
}

QuickstartRow measured(const std::string& name, const Model& model, const Dataset& test, Progress& progress) {
  Engine engine(model);
  EvalSettings settings;
  settings.batch = 100;
  settings.progress = &progress;
  const EvalResult result = evaluate(engine, test, {"top1", "loss"}, nullptr, settings);
  return {name, result.metrics[0].second, result.metrics[1].second, 0, ""};
}

/// What the float file of `float_bytes` would take with its quantized weights in their own format.
int64_t stored_bytes(const QuantizedModel& quantized, int64_t float_bytes) {
  for (const Quantizer& quantizer : quantized.quantizers) {
    if (quantizer.kind != Slot::Weight) continue;
    const Tensor& weight = quantized.model.graph.find_initializer(quantizer.tensor)->tensor;
    const Format& f = format(quantizer.spec.format);
    const int64_t codes = packed_bytes(f, weight.size());
    const int64_t scales = f.kind == FormatKind::Block
                               ? Tiling::per_group(weight.shape(), quantizer.spec.axis, f.block).tile_count()
                               : std::ssize(quantizer.params.scale) * static_cast<int64_t>(sizeof(float));
    float_bytes += codes + scales - weight.byte_size();
  }
  return float_bytes;
}

std::string layer_list(const Graph& graph) {
  std::string text;
  for (const Layer& layer : layers(graph)) {
    text += fmt::format("{}: {} {}\n", layer.name, layer.op, to_string(layer.weight_shape));
  }
  return text;
}

void write_json(const nlohmann::ordered_json& document, const fs::path& path) {
  AtomicFile file(path);
  file.write(json_text(document, 2) + "\n");
  file.commit();
}

}  // namespace

QuickstartResult quickstart(const QuickstartCall& call) {
  const Stopwatch watch;
  const FashionMnist images(call.data);
  std::error_code error;
  fs::create_directories(call.output, error);
  if (!fs::is_directory(call.output)) fail(ErrorCode::Io, call.output.string(), "cannot be made a folder");
  const fs::path results = call.output / "results.json";
  fs::remove(results, error);  // it would speak of the run before

  const TrainCall training{call, call.output / "model.onnx", call.progress};
  const TrainReport trained = train_model(training);
  show_training(trained, call.output / "training.png");

  QuickstartResult result;
  result.model = call.model;
  const Model model = read_onnx(training.output);
  const auto test = images.open(Split::Test, model.graph);
  const auto calibration = images.open(Split::Train, model.graph, kCalibrationImages);
  show_samples(*test, call.output / "samples.png");
  result.exact = measured("float", model, *test, *call.progress);
  result.exact.file = "model.onnx";
  result.exact.bytes = static_cast<int64_t>(fs::file_size(training.output));
  result.before = layer_list(model.graph);

  QuantizeSettings settings;
  settings.batch = 64;
  settings.progress = call.progress;
  for (const std::string& scheme : kSchemes) {
    const QuantizedModel quantized = quantize(model, scheme_config(scheme), calibration.get(), settings);
    if (result.after.empty()) result.after = describe(quantized);
    QuickstartRow row = measured(scheme, simulate(quantized), *test, *call.progress);
    if (onnx_has(format(schemes().get(scheme).rule.weight.spec->format))) {
      row.file = "model." + scheme + ".onnx";
      write_onnx(export_onnx(quantized).model, call.output / row.file);
      row.bytes = static_cast<int64_t>(fs::file_size(call.output / row.file));
    } else {
      row.bytes = stored_bytes(quantized, result.exact.bytes);
    }
    result.schemes.push_back(std::move(row));
    if (scheme != kDebugged) continue;
    DebugOptions options;
    options.act_hist = true;
    options.batch = settings.batch;
    options.progress = call.progress;
    DebugReport report = debug(quantized, *images.open(Split::Test, model.graph, kDebugImages), options);
    report.model = "model.onnx";
    report.scheme = scheme;
    write_debug_folder(report, call.output / "debug", /*force=*/true, *call.progress);
  }
  result.seconds = watch.seconds();
  write_json(to_json(result), results);
  return result;
}

nlohmann::ordered_json to_json(const QuickstartResult& result) {
  const auto row_json = [](const QuickstartRow& row) {
    return nlohmann::ordered_json{
        {"accuracy", row.accuracy},
        {"loss", row.loss},
        {"bytes", row.bytes},
        {"file", row.file.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(row.file)}};
  };
  auto rows = nlohmann::ordered_json::array();
  for (const QuickstartRow& row : result.schemes) {
    nlohmann::ordered_json json{{"scheme", row.scheme}};
    json.update(row_json(row));
    rows.push_back(std::move(json));
  }
  return {{"model", result.model}, {"float", row_json(result.exact)}, {"schemes", rows}, {"seconds", result.seconds}};
}

}  // namespace kaon
