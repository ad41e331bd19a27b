// What a sequence length that was not run before costs a language model, and whether lengths pile up in memory.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/stopwatch.h"
#include "bench.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"
#include "real_models.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

constexpr double kCachedRuns = 3;
constexpr double kGrowth = 1.1;
constexpr int64_t kVocabulary = 512;
constexpr int kLengths = 24;

class Reader {
 public:
  explicit Reader(const fs::path& model) : engine_(read_onnx(model)) { seconds(5); }

  /// One run on `length` tokens.
  double seconds(int64_t length) {
    const TensorMap inputs{{"input_ids", random_input({length}, 1, kVocabulary)}};
    const Stopwatch watch;
    engine_.run(inputs);
    return watch.seconds();
  }

 private:
  Engine engine_;
};

/// Milliseconds of the first run of a length and of three like the second, medians over some lengths.
std::pair<double, double> new_length(const fs::path& model, int64_t from) {
  Reader reader(model);
  std::vector<double> first, second;
  for (int64_t length = from; length < from + kLengths; ++length) {
    first.push_back(reader.seconds(length));
    second.push_back(reader.seconds(length));
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + kLengths / 2);
    return 1000 * values[kLengths / 2];
  };
  fmt::print(stderr, "lengths from {}: {:.2f} ms at first, {:.2f} ms when known\n", from, median(first),
             median(second));
  return {median(first), kCachedRuns * median(second)};
}

double resident_mb() {
  constexpr double kPages = 4096.0 / (1 << 20);
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0, resident = 0;
  if (!(pages >> all >> resident)) fail(ErrorCode::Unsupported, "/proc/self/statm", "the system does not say");
  return static_cast<double>(resident) * kPages;
}

/// MiB after a hundred lengths and after the first sixteen.
std::pair<double, double> memory(const fs::path& model) {
  Reader reader(model);
  double sixteen = 0;
  for (int64_t i = 0; i < 100; ++i) {
    reader.seconds(20 + i * 37 % 100);
    if (i == 15) sixteen = resident_mb();
  }
  const double hundred = resident_mb();
  fmt::print(stderr, "{:.0f} MiB after 16 lengths, {:.0f} after 100\n", sixteen, hundred);
  return {hundred, kGrowth * sixteen};
}

const bool kAdded = add([](Cases& cases) {
  const fs::path model = fs::path(KAON_MODELS) / "stories260K" / "model.onnx";
  if (!fs::exists(model)) {
    fmt::print(stderr, "lengths left out: {} does not exist\n", model.string());
    return;
  }
  for (const int64_t from : {16, 64, 128, 250}) {
    cases.push_back({.name = fmt::format("stories260K/new_length/{}", from),
                     .peer_name = "3 runs of a known one",
                     .prepare = [=] { return Work{.measure = [=] { return new_length(model, from); }}; }});
  }
  cases.push_back(
      {.name = "stories260K/memory/100_lengths", .peer_name = "1.1 of that after 16", .unit = "MiB", .prepare = [=] {
         return Work{.measure = [=] { return memory(model); }};
       }});
});

}  // namespace

}  // namespace kaon::bench
