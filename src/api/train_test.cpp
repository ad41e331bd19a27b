#include "api/train.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "api/fashion_mnist.h"
#include "base/parallel.h"
#include "engine/engine.h"
#include "graph/build_test.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"
#include "nn/models.h"
#include "nn/parameters.h"

namespace kaon {
namespace {

/// Whether Fashion-MNIST is here; says so where it is not.
bool has_images() {
  try {
    const FashionMnist images;
    return true;
  } catch (const Error&) {
    std::printf("skipped: Fashion-MNIST is not here (apt install dataset-fashion-mnist, or set KAON_DATA)\n");
    return false;
  }
}

TrainCall short_call(const std::filesystem::path& output) {
  TrainCall call;
  call.epochs = 1;
  call.limit = 2560;
  call.output = output;
  return call;
}

TEST(FashionMnist, SaysWhatProvidesIt) {
  const TemporaryFolder folder;
  const std::string message = error_of(ErrorCode::Io, [&] { FashionMnist images(folder.path()); });
  for (const char* part :
       {"apt install dataset-fashion-mnist", "--data DIR", "KAON_DATA", "train-images-idx3-ubyte.gz"}) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_NE(message.find(folder.path().string()), std::string::npos) << message;
}

TEST(FashionMnist, IsFoundThroughTheEnvironmentPackedOrNot) {
  const TemporaryFolder folder;
  const char* names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                         "t10k-labels-idx1-ubyte"};
  std::filesystem::create_directories(folder / "fashion-mnist");
  for (const std::string name : names) {
    const bool images = name.find("images") != std::string::npos;
    std::string file = std::string("\0\0\10", 3) + (images ? '\3' : '\1') + std::string("\0\0\0\2", 4);
    if (images) file += std::string("\0\0\0\34\0\0\0\34", 8);
    file += std::string(images ? 2 * 784 : 2, images ? '\377' : '\7');
    write_file(folder / ("fashion-mnist/" + name), file);
  }
  const char* before = std::getenv("KAON_DATA");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("KAON_DATA", folder.path().c_str(), 1);
  const FashionMnist images;
  kept.empty() ? ::unsetenv("KAON_DATA") : ::setenv("KAON_DATA", kept.c_str(), 1);
  EXPECT_EQ(images.folder(), folder / "fashion-mnist");
  const auto data = images.open(Split::Test, nn::mlp().graph);
  EXPECT_EQ(data->size(), 2);
  const Batch batch = data->read(1, 1);
  EXPECT_EQ(batch.inputs.at("input").shape(), (Shape{1, 1, 28, 28}));
  EXPECT_EQ(batch.inputs.at("input").as<float>()[783], 1.0F);
  EXPECT_EQ(batch.labels.to_int64(), std::vector<int64_t>{7});
}

TEST(TrainModel, LearnsFromSomeImages) {
  if (!has_images()) return;
  const TemporaryFolder folder;
  TrainCall call = short_call(folder / "m.onnx");
  call.epochs = 4;
  const TrainReport report = train_model(call);
  EXPECT_GT(report.test.accuracy, 0.75);
  EXPECT_GT(report.epochs.back().accuracy, report.epochs.front().accuracy);
  EXPECT_EQ(report.parameters, folder / "m.safetensors");
  const auto json = to_json(report);
  EXPECT_EQ(json["epochs"], 4);
  EXPECT_EQ(json["file"], (folder / "m.onnx").string());

  // The two files hold the same parameters.
  const Model written = read_onnx(report.file);
  Model loaded = nn::mlp(9);
  nn::load_parameters(loaded, report.parameters);
  const FashionMnist images;
  const TensorMap inputs = images.open(Split::Test, written.graph)->read(0, 8).inputs;
  EXPECT_EQ(Engine(written).run(inputs)[0].to_float(), Engine(loaded).run(inputs)[0].to_float());
}

TEST(TrainModel, OneSeedOnOneThreadGivesOneFile) {
  if (!has_images()) return;
  const int threads = thread_count();
  set_thread_count(1);
  const TemporaryFolder folder;
  for (const std::string model : {"mlp", "mobilenet"}) {
    TrainCall call = short_call(folder / "first.onnx");
    call.model = model;
    call.limit = 640;
    train_model(call);
    call.output = folder / "second.onnx";
    train_model(call);
    EXPECT_EQ(read_file(folder / "first.onnx"), read_file(folder / "second.onnx")) << model;
    EXPECT_EQ(read_file(folder / "first.safetensors"), read_file(folder / "second.safetensors")) << model;
    call.seed = 1;
    train_model(call);
    EXPECT_NE(read_file(folder / "first.onnx"), read_file(folder / "second.onnx")) << model;
  }
  set_thread_count(threads);
}

TEST(TrainModel, WrongCallsAreRefusedAtOnce) {
  TrainCall call = short_call("m.onnx");
  call.model = "mobilnet";
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { train_model(call); }).find("did you mean 'mobilenet'?"),
            std::string::npos);
  call = short_call("m.onnx");
  call.recipe = "tutoral";
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { train_model(call); }).find("did you mean 'tutorial'?"),
            std::string::npos);
  // So are files that could not be written in the end.
  call = short_call("m.pt");
  error_of(ErrorCode::InvalidConfig, [&] { train_model(call); });
  call = short_call("/dev/null/folder/m.onnx");
  error_of(ErrorCode::Io, [&] { train_model(call); });
}

}  // namespace
}  // namespace kaon
