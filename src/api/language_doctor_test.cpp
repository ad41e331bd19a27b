// Debug and doctor on a language model with a norm two of whose channels were made 60 times larger, and the weights
// that read them as much smaller: the same function, which static int8 inputs cannot hold.
#include <gtest/gtest.h>

#include <algorithm>

#include "api/debug.h"
#include "api/doctor.h"
#include "api/quantize_folder.h"
#include "io/files_test.h"
#include "io/npy/npy.h"
#include "io/safetensors/safetensors.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

const std::string kSick = "model.layers.1.mlp.gate_proj";  // whose input up_proj shares

Tensor some_ids(int64_t from) {
  constexpr int64_t kWindows = 24, kTokens = 12;
  std::vector<int64_t> ids;
  for (int64_t i = from; i < from + kWindows * kTokens; ++i) ids.push_back((i * i * 7 + i / kTokens * 31) % 48);
  return Tensor::of<int64_t>({kWindows, kTokens}, ids);
}

class SickLanguageModel : public ::testing::Test {
 protected:
  SickLanguageModel() {
    const fs::path healthy = KAON_SOURCE_DIR "/tests/data/lm/mistral";
    fs::create_directory(model_);
    fs::copy_file(healthy / "config.json", model_ / "config.json");
    NamedTensors tensors = read_safetensors(healthy / "model.safetensors");
    for (auto& [name, tensor] : tensors) {
      const bool norm = name == "model.layers.1.post_attention_layernorm.weight";
      if (!norm && name != kSick + ".weight" && name != "model.layers.1.mlp.up_proj.weight") continue;
      std::vector<float> values = tensor.to_float();
      const int64_t width = tensor.shape().back();
      for (int64_t i = 0; i < std::ssize(values); ++i) {
        if (i % width == 3 || i % width == 9) values[static_cast<size_t>(i)] *= norm ? 60.0F : 1 / 60.0F;
      }
      tensor = Tensor::of<float>(tensor.shape(), values);
    }
    write_safetensors(tensors, model_ / "model.safetensors");
    write_npz({{"input_ids", some_ids(0)}}, data_.calib);
    write_npz({{"input_ids", some_ids(1000)}}, data_.data);
  }

  const TemporaryFolder folder_;
  const fs::path model_ = folder_ / "model";
  const DataOptions data_ = [&] {
    DataOptions data;
    data.calib = folder_ / "calib.npz";
    data.data = folder_ / "data.npz";
    return data;
  }();
};

TEST_F(SickLanguageModel, DebugNamesTheChannels) {
  DebugCall call;
  call.model = model_;
  call.output = folder_ / "debug";
  call.quant.scheme = "w8a8c";
  call.data = data_;
  call.act_hist = true;
  const DebugReport report = debug_file(call).report;
  const DebugRow& worst = report.rows.front();
  EXPECT_EQ(worst.layer, kSick);
  EXPECT_EQ(worst.slot, Slot::Input);
  const QuantizerDebug& quantizer = report.of(worst);
  EXPECT_NE(quantizer.reading.find("2 of 16 input channels (3, 9) hold"), std::string::npos) << quantizer.reading;
  // Means of |x| over tokens and over channels.
  for (const char* picture : {"absmean_ch0", "absmean_ch1"}) {
    EXPECT_TRUE(fs::exists(folder_ / "debug" / (kSick + ".input_ref_histogram_" + picture + ".png")));
  }
}

TEST_F(SickLanguageModel, TheDoctorFindsTheLayerAndSmoothsIt) {
  DoctorCall call;
  call.model = model_;
  call.output = folder_ / "clinic";
  call.quant.scheme = "w8a8c";
  call.data = data_;
  const Diagnosis found = doctor_file(call);
  EXPECT_EQ(found.verdict, Verdict::Cured);
  EXPECT_EQ(found.sensitivity.front().layer, kSick);
  EXPECT_EQ(found.causes.front().kind, CauseKind::ActivationChannelImbalance);
  EXPECT_EQ(found.causes.front().layers, std::vector<std::string>{kSick});
  const auto smoothed = std::ranges::find(found.cure.config.algorithms, "smooth_quant", &AlgorithmConfig::name);
  EXPECT_NE(smoothed, found.cure.config.algorithms.end());
  EXPECT_GT(found.cured, found.quantized + 6);  // dB
  DataOptions calibration;
  calibration.calib = data_.calib;
  const QuantizeReport written = quantize_folder(model_, folder_ / "cured", found.cure.config, calibration, {});
  EXPECT_EQ(std::ranges::count(written.layers, kSick), 1);
}

}  // namespace
}  // namespace kaon
