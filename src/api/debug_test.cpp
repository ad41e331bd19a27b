#include "api/debug.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"
#include "quant/networks_test.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

class DebugFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("kaon_debug_test_{}", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    write_onnx(residual_network(), folder_ / "net.onnx");
    write_npz({{"x", residual_data().read(0, 12).inputs.at("x")}}, folder_ / "x.npz");
  }
  void TearDown() override {
    for (const char* name : {"KAON_DEBUG", "KAON_DEBUG_INPUT", "KAON_DEBUG_ACT_HIST", "KAON_DEBUG_NAN"}) unsetenv(name);
    fs::remove_all(folder_);
  }

  DebugCall call(const std::string& out) const {
    DebugCall call;
    call.model = folder_ / "net.onnx";
    call.output = folder_ / out;
    call.quant.scheme = "w8a8";
    call.data.data = folder_ / "x.npz";
    call.act_hist = true;
    return call;
  }
  std::set<std::string> files(const std::string& out) const {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / out)) {
      names.insert(entry.path().filename().string());
    }
    names.erase(".kaon_files");  // the list of what Kaon wrote
    return names;
  }
  nlohmann::json read(const std::string& file) const {
    std::ifstream stream(folder_ / file);
    return nlohmann::json::parse(stream);
  }
  std::string text(const std::string& file) const {
    std::ifstream stream(folder_ / file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  fs::path folder_;
};

TEST_F(DebugFolder, TheDocumentationNamesEveryKeyAndVariable) {
  std::ifstream file(KAON_SOURCE_DIR "/docs/debug.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  debug_file(call("out"));
  const nlohmann::json row = read("out/summary.json")["quantizers"][0];
  for (const auto& [key, value] : row.items()) {
    EXPECT_NE(page.find("`" + key + "`"), std::string::npos) << key;
  }
  for (const char* name : {"KAON_DEBUG=", "KAON_DEBUG_INPUT=", "KAON_DEBUG_ACT_HIST=", "KAON_DEBUG_NAN="}) {
    EXPECT_NE(page.find(name), std::string::npos) << name;
  }
}

TEST_F(DebugFolder, HasEveryFileOfEverySlot) {
  const DebugResult result = debug_file(call("out"));
  std::set<std::string> expected = {"summary_io_quantization_error.png",
                                    "summary_ref_input_error.png",
                                    "summary_ref_output_error.png",
                                    "summary_weight_error.png",
                                    "summary.json",
                                    "summary.csv",
                                    "report.html"};
  int64_t pictures = 4;
  for (const DebugRow& row : result.report.rows) {
    const std::string stem = row.layer + "." + std::string(name_of(row.slot));
    if (row.slot == Slot::Weight) expected.insert(row.layer + ".weight_stats.json");
    if (row.slot == Slot::Weight || row.slot == Slot::Bias) {
      expected.insert(stem + ".png");
      ++pictures;
      continue;
    }
    for (const char* end : {"_histogram.png", "_qdq_histogram.png", "_ref_histogram.png",
                            "_ref_histogram_absmean_ch0.png", "_ref_histogram_absmean_ch1.png"}) {
      expected.insert(stem + end);
      ++pictures;
    }
  }
  EXPECT_EQ(files("out"), expected);
  EXPECT_EQ(result.pictures, pictures);
  for (const std::string& name : files("out")) EXPECT_GT(fs::file_size(folder_ / "out" / name), 100U) << name;
}

TEST_F(DebugFolder, TablesSayWhatTheReportSays) {
  const DebugResult result = debug_file(call("out"));
  const nlohmann::json summary = read("out/summary.json");
  EXPECT_EQ(summary.at("model"), "net.onnx");
  EXPECT_EQ(summary.at("scheme"), "w8a8");
  EXPECT_EQ(summary.at("samples"), 12);
  EXPECT_TRUE(summary.at("nan").is_null());
  const auto& rows = summary.at("quantizers");
  ASSERT_EQ(rows.size(), result.report.rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const QuantizerDebug& q = result.report.of(result.report.rows[i]);
    EXPECT_EQ(rows[i].at("id"), q.id);
    EXPECT_EQ(rows[i].at("layer"), result.report.rows[i].layer);
    EXPECT_EQ(rows[i].at("slot"), name_of(result.report.rows[i].slot));
    EXPECT_EQ(rows[i].at("mse"), q.io.mse());
    EXPECT_EQ(rows[i].at("local_error"), q.local_error());
    EXPECT_EQ(rows[i].at("reading"), q.reading);
    for (const char* key : {"tensor", "format", "scale", "zero_point", "min", "max", "mean_relative_error", "sqnr_db",
                            "cosine", "max_abs", "clipped", "zeroed", "clip_error", "round_error", "kurtosis",
                            "channel_imbalance", "outlier_channels", "bias_shift", "cumulative_error"}) {
      EXPECT_FALSE(rows[i].at(key).is_null()) << key;
    }
    if (result.report.rows[i].slot == Slot::Weight) {
      const nlohmann::json stats = read(fmt::format("out/{}.weight_stats.json", result.report.rows[i].layer));
      EXPECT_EQ(stats.at("mse"), q.io.mse());
      EXPECT_EQ(stats.at("std"), q.input.stddev());
    }
  }
  const std::string csv = text("out/summary.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), std::ssize(rows) + 1);
  EXPECT_EQ(csv.substr(0, 30), "id,layer,tensor,slot,format,sc");
}

TEST_F(DebugFolder, LayerNamesBecomeSafeAndDifferentFileNames) {
  Model model = residual_network();
  const std::string odd[] = {"../conv 1:é", "../conv_1:é", ".hidden\n"};
  size_t i = 0;
  for (const char* name : {"conv1", "conv2", "fc"}) {
    for (Node& node : model.graph.nodes) {
      std::replace(node.inputs.begin(), node.inputs.end(), std::string(name) + ".weight", odd[i] + ".weight");
    }
    model.graph.find_initializer(std::string(name) + ".weight")->name = odd[i] + ".weight";
    ++i;
  }
  write_onnx(model, folder_ / "net.onnx");
  DebugCall asked = call("out");
  asked.quant.scheme = "w8";
  asked.act_hist = false;
  debug_file(asked);
  const std::set<std::string> names = files("out");
  EXPECT_TRUE(names.contains("_.._conv_1___.weight.png"));
  EXPECT_TRUE(names.contains("_.._conv_1___~2.weight.png"));
  EXPECT_TRUE(names.contains("_.hidden_.weight.png"));
  EXPECT_EQ(names.size(), 3U * 2 + 4 + 3);
}

TEST_F(DebugFolder, AnEarlierReportIsReplacedOnlyByForce) {
  debug_file(call("out"));
  const std::string before = text("out/summary.json");
  DebugCall again = call("out");
  again.quant.scheme = "w8";
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { debug_file(again); }).find("--force"), std::string::npos);
  EXPECT_EQ(text("out/summary.json"), before);
  std::ofstream(folder_ / "out" / "notes.png") << "mine";
  std::ofstream(folder_ / "out" / "my_histogram.png") << "mine";
  again.force = true;
  debug_file(again);
  EXPECT_TRUE(files("out").contains("notes.png"));
  EXPECT_TRUE(files("out").contains("my_histogram.png"));
  EXPECT_FALSE(files("out").contains("conv1.bias.png"));
  EXPECT_FALSE(files("out").contains("conv1.input_ref_histogram.png"));
}

TEST_F(DebugFolder, AFailedRunLeavesNothing) {
  DebugCall asked = call("deep/out");
  asked.layers = "nothing*";
  error_of(ErrorCode::InvalidInput, [&] { debug_file(asked); });
  EXPECT_EQ(files("."), (std::set<std::string>{"net.onnx", "x.npz"}));
}

/// Sqrt behind conv2, of numbers of both signs.
Model with_nan() {
  Model model = residual_network();
  Node root = make_node("Sqrt", {"c2"}, {"root"});
  root.name = "/block/Sqrt";
  model.graph.nodes[3].inputs[0] = "root";
  model.graph.nodes.insert(model.graph.nodes.begin() + 3, root);
  return model;
}

TEST_F(DebugFolder, ANanStopsItAndIsInTheSummary) {
  write_onnx(with_nan(), folder_ / "net.onnx");
  DebugCall asked = call("out");
  asked.nan = true;
  const std::string message = error_of(ErrorCode::Numeric, [&] { debug_file(asked); });
  EXPECT_NE(message.find("block output: "), std::string::npos) << message;
  EXPECT_NE(message.find("of batch 0, in the float model already"), std::string::npos) << message;
  const nlohmann::json nan = read("out/summary.json").at("nan");
  EXPECT_EQ(nan.at("layer"), "block");
  EXPECT_EQ(nan.at("slot"), "output");
  EXPECT_EQ(nan.at("batch"), 0);
  EXPECT_EQ(nan.at("float_run"), true);
  EXPECT_EQ(nan.at("element").size(), 4U);
}

TEST_F(DebugFolder, InputTakesThePlaceOfData) {
  DebugCall asked = call("out");
  asked.data.data.clear();
  asked.input = folder_ / "x.npz";
  asked.data.limit = 7;
  EXPECT_EQ(debug_file(asked).report.samples, 7);
}

TEST_F(DebugFolder, TheEnvironmentIsRead) {
  EXPECT_FALSE(debug_environment().has_value());
  setenv("KAON_DEBUG", (folder_ / "env").c_str(), 1);
  setenv("KAON_DEBUG_NAN", "1", 1);
  setenv("KAON_DEBUG_ACT_HIST", "0", 1);
  setenv("KAON_DEBUG_INPUT", "some.pt", 1);
  const std::optional<DebugEnvironment> asked = debug_environment();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->folder, folder_ / "env");
  EXPECT_EQ(asked->input, "some.pt");
  EXPECT_TRUE(asked->nan);
  EXPECT_FALSE(asked->act_hist);
  setenv("KAON_DEBUG_NAN", "maybe", 1);
  EXPECT_NE(error_of(ErrorCode::InvalidConfig, [] { debug_environment(); }).find("KAON_DEBUG_NAN"), std::string::npos);
}

}  // namespace
}  // namespace kaon
