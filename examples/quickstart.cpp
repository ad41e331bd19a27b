// Train, quantize, compare, export: what `kaon quickstart` does, through the library.
//
//   quickstart [EPOCHS [IMAGES]]     default: 3 epochs of all 60,000 images
#include <fmt/format.h>
#include <kaon/kaon.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

namespace {

double accuracy(const kaon::Model& model, const kaon::Dataset& test) {
  kaon::Engine engine(model);
  return kaon::evaluate(engine, test, {"top1"}).metrics.front().second;
}

void run(int64_t epochs, int64_t images) {
  // A network is a graph of ONNX operators; the builder names its parameters.
  const kaon::Model untrained =
      kaon::nn::Network({1, 28, 28}).flatten().linear("fc1", 256).relu().linear("fc2", 10).model();

  const kaon::FashionMnist fashion;
  const auto train_set = fashion.open(kaon::Split::Train, untrained.graph, images);
  const auto test_set = fashion.open(kaon::Split::Test, untrained.graph);
  const auto calibration = fashion.open(kaon::Split::Train, untrained.graph, 256);

  kaon::nn::TrainOptions options;
  options.epochs = epochs;
  const kaon::Model model = kaon::nn::train(untrained, *train_set, nullptr, options).model;
  kaon::write_onnx(model, "model.onnx");
  std::cout << fmt::format("float   accuracy {:.4f}, {} bytes\n", accuracy(model, *test_set),
                           std::filesystem::file_size("model.onnx"));

  for (const char* scheme : {"w8", "w8a8c", "w4g32"}) {
    // Quantizers sit on the edges of the float model; simulate() makes a model of them that the engine runs.
    const kaon::QuantizedModel quantized = kaon::quantize(model, kaon::scheme_config(scheme), calibration.get());
    const std::string file = fmt::format("model.{}.onnx", scheme);
    kaon::write_onnx(kaon::export_onnx(quantized).model, file);
    std::cout << fmt::format("{:7} accuracy {:.4f}, {} bytes\n", scheme, accuracy(kaon::simulate(quantized), *test_set),
                             std::filesystem::file_size(file));
  }

  // Anything a scheme does not say is a field of its config.
  kaon::Config mixed = kaon::scheme_config("w8a8c");
  mixed.exclude = {"fc2"};
  std::cout << "\nfc1 in 8 bits, fc2 in float:\n" << kaon::describe(kaon::quantize(model, mixed, calibration.get()));
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc > 1 ? std::atoll(argv[1]) : 3, argc > 2 ? std::atoll(argv[2]) : 0);
} catch (const kaon::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
