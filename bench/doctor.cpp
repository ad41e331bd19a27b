// The doctor on real models: what its cure leaves to be wished for beside what is to be reached, and what it costs.
#include <fmt/core.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench.h"
#include "child.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kModels = KAON_MODELS;
const fs::path kData = kModels / ".." / "data";

struct Patient {
  const char* name;
  const char* model;
  const char* scheme;
  std::vector<std::string> flags;
  const char* cause;  ///< that must be named first; "" = any
  double to_reach;    ///< the metric
  double most_bits;   ///< of a weight on average; 0: no matter
};

const Patient kPatients[] = {
    {"resnet20/w4c", "resnet20_cifar10_fp32.onnx", "w4c", {"--max-drop", "0.005"}, "weight_resolution", 0.912, 0},
    {"mobilenetv2/w8a8",
     "mobilenetv2_1.0_224_imagenet_fp32.onnx",
     "w8a8",
     {"--max-drop", "0.009"},
     "weight_channel_imbalance",
     0.68,
     0},
    {"mobilenetv2/w8a8/same",
     "mobilenetv2_1.0_224_imagenet_fp32.onnx",
     "w8a8",
     {"--max-drop", "0.009", "--allow", "same"},
     "weight_channel_imbalance",
     0.65,
     0},
    {"stories260K/w4c",
     "stories260K/model.onnx",
     "w4c",
     {"--metric", "loss", "--max-drop", "0.0658"},
     "weight_resolution",
     1.68,
     5},
};

/// A file with `document` that lasts as long as the machine's temporary ones.
fs::path written(const std::string& name, const json& document) {
  const fs::path path = fs::temp_directory_path() / ("kaon_bench_doctor_" + name);
  std::ofstream(path) << document;
  return path;
}

std::vector<std::string> data_flags(const std::string& model) {
  if (model.starts_with("stories")) return {"--data", kData / "text" / "tinystories_ids.npz"};
  json val, calib;
  if (model.starts_with("ch_PP") || model.starts_with("ultraface")) {
    const bool text = model.starts_with("ch_PP");
    val = {{"images", (kData / "imagenet" / "val").string()}, {"scale", 1}, {"limit", 32}};
    val["resize"] = text ? std::vector<int>{48, 320} : std::vector<int>{240, 320};
    val["mean"] = text ? 127.5 : 127;
    val["std"] = text ? 127.5 : 128;
    calib = val;
    calib["images"] = (kData / "imagenet" / "calib").string();
  } else if (model.starts_with("resnet")) {
    val = {{"cifar", (kData / "cifar10" / "test_batch.bin").string()},
           {"first", 1000},
           {"limit", 1000},
           {"mean", {0.485, 0.456, 0.406}},
           {"std", {0.229, 0.224, 0.225}}};
    calib = val;
    calib["first"] = 0;
    calib["limit"] = 256;
  } else {
    val = {{"images", (kData / "imagenet" / "val").string()},
           {"labels", (kData / "imagenet" / "val_labels.txt").string()},
           {"scale", 1},
           {"crop", 224},
           {"limit", 1000}};
    val["mean"] = val["std"] = {127.5, 127.5, 127.5};
    calib = val;
    calib["images"] = (kData / "imagenet" / "calib").string();
    calib.erase("labels");
    calib["limit"] = 100;
  }
  return {"--data", written("val.json", val), "--calib", written("calib.json", calib)};
}

json diagnosis_of(const std::string& model, const std::string& scheme, const std::vector<std::string>& flags,
                  bool resume = false) {
  const fs::path folder = fs::temp_directory_path() / "kaon_bench_doctor";
  if (!resume) fs::remove_all(folder);
  std::vector<std::string> call = {KAON_PROGRAM, "doctor", kModels / model, "--scheme", scheme,
                                   "-o",         folder,   "--json",        "-q"};
  const std::vector<std::string> data = data_flags(model);
  call.insert(call.end(), data.begin(), data.end());
  call.insert(call.end(), flags.begin(), flags.end());
  return json::parse(output_of(call));
}

double float_seconds(const std::string& model) {
  std::vector<std::string> call = {KAON_PROGRAM, "eval", kModels / model, "--json", "-q"};
  const std::vector<std::string> data = data_flags(model);
  call.insert(call.end(), data.begin(), data.begin() + 2);
  return json::parse(output_of(call)).at("seconds").get<double>();
}

/// What is left to be wished for, less being better: images in a hundred that are taken for something else, or a loss.
std::pair<double, double> left_over(const Patient& patient) {
  const json found = diagnosis_of(patient.model, patient.scheme, patient.flags);
  const std::string cause = found.at("causes").at(0).at("cause");
  if (*patient.cause != 0 && cause != patient.cause) {
    fail(ErrorCode::Numeric, patient.name, "is said to suffer from {}, not from {}", cause, patient.cause);
  }
  const double bits = found.at("cure").at("bits_average");
  if (patient.most_bits > 0 && bits > patient.most_bits) {
    fail(ErrorCode::Numeric, patient.name, "has {} bits a weight; {} are allowed", bits, patient.most_bits);
  }
  const double cured = found.at("cured");
  if (found.at("lower_is_better").get<bool>()) return {cured, patient.to_reach};
  return {100 * (1 - cured), 100 * (1 - patient.to_reach)};
}

constexpr double kWishedDb = 6;
constexpr double kMostBytes = 1.1;

/// What is left of the noise of a model without labels, and what 6 dB less would leave, with a tenth more bytes at
/// most; in millionths of the signal.
std::pair<double, double> noise_left(const std::string& model) {
  const auto share = [](double sqnr_db) { return std::pow(10, -sqnr_db / 10); };
  // A look tells what there is to be taken away.
  const double before = share(diagnosis_of(model, "w8a8c", {"--time", "0.001"}).at("quantized"));
  const double wished = before * share(kWishedDb);
  const json found = diagnosis_of(model, "w8a8c", {"--max-drop", fmt::format("{}", wished), "--resume"}, true);
  const json& cure = found.at("cure");
  const double bytes = cure.at("bytes").get<double>() / cure.at("bytes_before").get<double>();
  if (bytes > kMostBytes) fail(ErrorCode::Numeric, model, "has {} times the bytes; {} are allowed", bytes, kMostBytes);
  return {1e6 * share(found.at("cured")), 1e6 * wished};
}

const bool kAdded = add([](Cases& cases) {
  const auto there = [](const std::string& model) {
    if (fs::exists(kModels / model)) return true;
    fmt::print(stderr, "no {} beside the checkout: it is not measured\n", model);
    return false;
  };
  for (const Patient& patient : kPatients) {
    if (!there(patient.model)) continue;
    const bool loss = patient.to_reach > 1;
    cases.push_back(
        {.name = patient.name, .peer_name = "to reach", .unit = loss ? "loss" : "% wrong", .prepare = [&patient] {
           return Work{.measure = [&patient] { return left_over(patient); }};
         }});
  }
  for (const char* model : {"ultraface_RFB-320.onnx", "ch_PP-OCRv4_rec_infer.onnx"}) {
    if (!there(model)) continue;
    const std::string name = fs::path(model).stem().string() + "/w8a8c";
    cases.push_back({.name = name, .peer_name = "6 dB less", .unit = "ppm noise", .prepare = [model] {
                       return Work{.measure = [model] { return noise_left(model); }};
                     }});
  }
  const std::string resnet = "resnet20_cifar10_fp32.onnx";
  if (there(resnet)) {
    cases.push_back(
        {.name = "resnet20/w8a8/steps 1-6", .peer_name = "60 float forwards", .unit = "s", .prepare = [resnet] {
           return Work{.measure = [resnet] {
             const json found = diagnosis_of(resnet, "w8a8", {"--max-drop", "0", "--allow", "same,granularity"});
             double seconds = 0;
             for (const json& step : found.at("steps")) {
               if (step.at("step") <= 6) seconds += step.at("seconds").get<double>();
             }
             return std::pair(seconds, 60 * float_seconds(resnet));
           }};
         }});
    cases.push_back(
        {.name = "resnet20/w8a8/per quantizer", .peer_name = "30 float forwards", .unit = "s", .prepare = [resnet] {
           return Work{.measure = [resnet] {
             const json found = diagnosis_of(resnet, "w8a8", {});
             double seconds = 0;
             for (const json& step : found.at("steps")) {
               if (step.at("step") == 5) seconds += step.at("seconds").get<double>();
             }
             return std::pair(seconds, 30 * float_seconds(resnet));
           }};
         }});
  }
  const std::string mobilenet = "mobilenetv2_1.0_224_imagenet_fp32.onnx";
  if (there(mobilenet)) {
    cases.push_back({.name = "mobilenetv2/w8a8/seconds", .peer_name = "allowed", .unit = "s", .prepare = [mobilenet] {
                       return Work{.measure = [mobilenet] {
                         const json found = diagnosis_of(mobilenet, "w8a8", {"--max-drop", "0.009"});
                         return std::pair(found.at("seconds").get<double>(), 300.0);
                       }};
                     }});
  }
});

}  // namespace

}  // namespace kaon::bench
