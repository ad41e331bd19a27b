#include "api/doctor.h"

#include <gtest/gtest.h>

#include <fstream>

#include "api/quantize.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "numerics/half.h"
#include "quant/networks_test.h"
#include "report/browser_test.h"

namespace kaon {
namespace {

Tensor in_16_bits(const Tensor& tensor) {
  std::vector<uint16_t> bits;
  for (const float value : tensor.to_float()) bits.push_back(float32_to_float16(value));
  return Tensor::copy_bytes(DType::Float16, tensor.shape(), std::as_bytes(std::span(bits)));
}

std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class DoctorFolder : public testing::Test {
 protected:
  DoctorCall call() const {
    DoctorCall call;
    call.model = folder_ / "net.onnx";
    call.output = folder_ / "clinic";
    call.data.data = folder_ / "x.npz";
    return call;
  }

  TemporaryFolder folder_;
};

TEST_F(DoctorFolder, SaysThatAModelIn16BitsComputesInFloat32) {
  Model model = residual_network();
  for (Initializer& one : model.graph.initializers) one.tensor = in_16_bits(one.tensor);
  model.graph.inputs[0].type = DType::Float16;
  model.graph.outputs[0].type = DType::Float16;
  write_onnx(model, folder_ / "net.onnx");
  write_npz({{"x", in_16_bits(residual_data(16).read(0, 16).inputs.at("x"))}}, folder_ / "x.npz");
  DoctorCall asked = call();
  asked.quant.scheme = "w8a8c";
  const Diagnosis found = doctor_file(asked);
  ASSERT_EQ(found.notes.size(), 1U);
  EXPECT_NE(found.notes[0].find("computes in float32"), std::string::npos);
}

TEST_F(DoctorFolder, ThePageWorksInABrowser) {
  write_onnx(residual_network(), folder_ / "net.onnx");
  write_npz({{"x", residual_data(32).read(0, 32).inputs.at("x")}}, folder_ / "x.npz");
  std::ofstream(folder_ / "config.json") << R"({"scheme": "w8a8", "global": {"weight": {"format": "int2"}}})";
  DoctorCall asked = call();
  asked.quant.config = folder_ / "config.json";
  asked.max_drop = 0.002;
  const Diagnosis found = doctor_file(asked);
  ASSERT_EQ(enum_name(found.verdict), "cured");
  if (browser().empty()) {
    std::puts("not run: there is no chromium here");
    return;
  }
  const std::filesystem::path page = asked.output / "report.html";
  const std::string script = text_of(std::filesystem::path(KAON_SOURCE_DIR) / "src/report/page/doctor_test.js");
  EXPECT_EQ(use_in_browser(page, script), "fine");
  EXPECT_NE(use_in_browser(page, "document.getElementById('causes').remove();" + script), "fine");
}

// Rounding that sees what the quantized network reads depends on every layer before it: cures are made anew on top of
// it, and the config says all that is needed to do so again.
TEST_F(DoctorFolder, CuresOnTopOfSequentialRounding) {
  write_onnx(residual_network(), folder_ / "net.onnx");
  write_npz({{"x", residual_data(32).read(0, 32).inputs.at("x")}}, folder_ / "x.npz");
  for (const char* algorithm : {"gptq", "adaround"}) {
    std::ofstream(folder_ / "config.json")
        << R"({"scheme": "w8a8", "global": {"weight": {"format": "int4"}}, "algorithms": [{"name": ")" << algorithm
        << R"(", "sequential": 1}]})";
    DoctorCall asked = call();
    asked.quant.config = folder_ / "config.json";
    asked.max_drop = 0.002;
    asked.output = folder_ / algorithm;
    const Diagnosis found = doctor_file(asked);
    EXPECT_EQ(enum_name(found.verdict), "cured") << algorithm;
    EXPECT_FALSE(found.cure.changes.empty()) << algorithm;
    // A weight whose codes were chosen is as it was in float when it is off: 4 bits do more than 8.
    const auto most = [&](bool weights) {
      double alone = 0;
      for (const Sensitivity& row : found.sensitivity) {
        if ((row.slot == Slot::Weight) == weights) alone = std::max(alone, row.alone);
      }
      return alone;
    };
    EXPECT_GT(most(true), 4 * most(false)) << algorithm;
    for (const Trial& trial : found.tried) EXPECT_EQ(trial.note.find("sequential"), std::string::npos) << trial.note;
    QuantizeCall again;
    again.model = asked.model;
    again.output = folder_ / "again.onnx";
    again.quant.config = asked.output / "cure.json";
    again.data.calib = asked.data.data;
    again.data.calib_limit = found.cure.calibration_samples;
    quantize_file(again);
    EXPECT_EQ(text_of(again.output), text_of(asked.output / "model.onnx")) << algorithm;
    std::filesystem::remove(again.output);
  }
}

}  // namespace
}  // namespace kaon
