// Static int8 quantization of MobileNetV2 from JPEG files, end to end, beside ONNX Runtime's Python quantizer: time
// from the start of our process (theirs: after its imports), and peak memory.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench.h"
#include "child.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

const fs::path kData = fs::path(KAON_MODELS) / ".." / "data" / "imagenet";
const fs::path kModel = fs::path(KAON_MODELS) / "mobilenetv2_1.0_224_imagenet_fp32.onnx";

struct Cost {
  double seconds = 0;
  double peak_mb = 0;
};

fs::path scratch(const std::string& name) { return fs::temp_directory_path() / ("kaon_bench_quantize_" + name); }

/// Once, from a cold start.
Cost run_once(const std::string& observer, const std::string& folder, int count) {
  const fs::path description = scratch("calib.json");
  nlohmann::json json = {{"images", (kData / folder).string()}, {"scale", 1}, {"crop", 224}, {"limit", count}};
  json["mean"] = json["std"] = {127.5, 127.5, 127.5};
  std::ofstream(description) << json;
  const fs::path out = scratch("ours.onnx");
  const auto start = std::chrono::steady_clock::now();
  const auto report =
      nlohmann::json::parse(output_of({KAON_PROGRAM, "quantize", kModel, "--scheme", "w8a8c", "--observer", observer,
                                       "--calib", description, "-o", out, "--json", "-q"}));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (report.at("calibration").at("samples") != count || report.at("layers") != 53) {
    fail(ErrorCode::Internal, observer, "quantized something else: {}", report.dump());
  }
  return {elapsed.count(), report.at("peak_mb")};
}

/// The median of several runs: ours are so short that the machine's mood shows.
double seconds(const std::string& observer, const std::string& folder, int count) {
  std::array<double, 5> runs;
  for (double& run : runs) run = run_once(observer, folder, count).seconds;
  std::ranges::sort(runs);
  return runs[runs.size() / 2];
}

/// Runs once for each observer and count, however many cases ask.
Cost theirs(const std::string& observer, const std::string& folder, int count) {
  static std::map<std::string, Cost> known;
  const std::string key = fmt::format("{}/{}/{}", observer, folder, count);
  if (const auto it = known.find(key); it != known.end()) return it->second;
  const auto report = nlohmann::json::parse(output_of({KAON_PYTHON, KAON_QUANTIZE_PEER, kModel, kData / folder,
                                                       std::to_string(count), observer, scratch("theirs.onnx")}));
  return known[key] = {report.at("seconds"), report.at("peak_mb")};
}

void add_beside(Cases& cases, const std::string& observer, int count) {
  const std::string name = fmt::format("{}/mobilenetv2/{}", observer, count);
  const char* peer = "onnxruntime quantize_static";
  cases.push_back({.name = name, .peer_name = peer, .unit = "s", .prepare = [=] {
                     return Work{.measure = [=] {
                       return std::pair(seconds(observer, "calib", count), theirs(observer, "calib", count).seconds);
                     }};
                   }});
  cases.push_back({.name = name + "/memory", .peer_name = peer, .unit = "MiB", .prepare = [=] {
                     return Work{.measure = [=] {
                       return std::pair(run_once(observer, "calib", count).peak_mb,
                                        theirs(observer, "calib", count).peak_mb);
                     }};
                   }});
}

const bool kAdded = add([](Cases& cases) {
  if (!fs::exists(kModel) || !fs::exists(KAON_PYTHON)) {
    fmt::print(stderr, "no real models or no oracles beside the checkout: quantization is not compared\n");
    return;
  }
  add_beside(cases, "min_max", 250);
  add_beside(cases, "percentile", 50);
  add_beside(cases, "entropy", 50);
  for (const char* observer : {"min_max", "percentile", "entropy"}) {
    cases.push_back({.name = fmt::format("{}/mobilenetv2/1000/memory", observer),
                     .peer_name = "kaon with 50 images",
                     .unit = "MiB",
                     .prepare = [=] {
                       return Work{.measure = [=] {
                         return std::pair(run_once(observer, "val", 1000).peak_mb,
                                          run_once(observer, "val", 50).peak_mb);
                       }};
                     }});
  }
});

}  // namespace

}  // namespace kaon::bench
