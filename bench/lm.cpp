// Language models in float32: perplexity beside transformers, generation beside transformers and llama.cpp, each in a
// process of its own on the same threads.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench.h"
#include "child.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kModels = KAON_MODELS;
const fs::path kText = kModels / ".." / "data" / "text" / "docs_valid.txt";
constexpr int kThreads = 2;
constexpr int kWindow = 512;
constexpr int kWindows = 24;
constexpr int kTokens = 128;
constexpr int kRepeats = 3;
constexpr const char* kPrompt = "The installation of the program";

class Peer {
 public:
  Peer(const std::string& way, const fs::path& path)
      : child_(start({KAON_PYTHON, KAON_LM_PEER, way, path.string(), std::to_string(kThreads)})) {
    if (read_text(child_.from, true).empty()) fail(ErrorCode::Io, "lm_peer.py", "{} did not start", way);
  }
  ~Peer() { stop(child_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  json ask(const std::string& line) {
    const std::string text = line + "\n";
    const bool sent = ::write(child_.to, text.data(), text.size()) == std::ssize(text);
    const std::string answer = sent ? read_text(child_.from, true) : "";
    if (answer.empty()) fail(ErrorCode::Io, "lm_peer.py", "ended");
    return json::parse(answer);
  }

 private:
  Child child_;
};

/// What this program makes, beside each other's runs.
fs::path scratch(const std::string& name) { return fs::temp_directory_path() / ("kaon_bench_lm_" + name); }

fs::path written(const std::string& name, const std::string& text) {
  std::ofstream(scratch(name)) << text;
  return scratch(name);
}

json kaon_says(std::vector<std::string> words) {
  words.insert(words.begin(), KAON_PROGRAM);
  words.insert(words.end(), {"--json", "-q", "--threads", std::to_string(kThreads)});
  return json::parse(output_of(words));
}

/// Seconds of a perplexity, the least of some runs that take turns.
Work perplexity(const fs::path& folder) {
  Work work;
  work.measure = [folder] {
    const json text = {
        {"text", fs::absolute(kText).string()}, {"window", kWindow}, {"stride", kWindow}, {"limit", kWindows}};
    const fs::path data = written("windows.json", text.dump());
    Peer peer("transformers", folder);
    std::pair<double, double> least{INFINITY, INFINITY};
    for (int i = 0; i < kRepeats; ++i) {
      const json ours = kaon_says({"eval", folder.string(), "--data", data.string(), "--metric", "ppl"});
      const json theirs = peer.ask(fmt::format("ppl {} {} {}", fs::absolute(kText).string(), kWindow, kWindows));
      const double a = ours["metrics"]["ppl"], b = theirs["ppl"];
      if (!(std::abs(a / b - 1) <= 5e-4)) {
        fail(ErrorCode::Internal, folder.string(), "the perplexity is {} and not the peer's {}", a, b);
      }
      least.first = std::min(least.first, 1000 * ours["seconds"].get<double>());
      least.second = std::min(least.second, 1000 * theirs["seconds"].get<double>());
    }
    return least;
  };
  return work;
}

/// Milliseconds of a token, with the cache.
Work generation(const fs::path& folder, const std::string& way, const fs::path& of_peer) {
  Work work;
  work.measure = [folder, way, of_peer] {
    const fs::path prompt = written("prompt.txt", kPrompt);
    if (way == "llama") {
      kaon_says(
          {"quantize", folder.string(), "--format", "gguf", "--scheme", "f32", "-o", of_peer.string(), "--force"});
    }
    Peer peer(way, of_peer);
    std::pair<double, double> least{INFINITY, INFINITY};
    for (int i = 0; i < kRepeats; ++i) {
      // Both read the same file: weights in 16 bits would be half as much to read.
      const json ours =
          kaon_says({"generate", of_peer.string(), "--prompt", kPrompt, "--tokens", std::to_string(kTokens)});
      const json theirs = peer.ask(fmt::format("generate {} {}", prompt.string(), kTokens));
      least.first = std::min(least.first, 1000 / ours["decode_tokens_per_second"].get<double>());
      least.second = std::min(least.second, 1000 / theirs["tokens_per_second"].get<double>());
    }
    return least;
  };
  return work;
}

const bool kAdded = add([](Cases& cases) {
  if (!fs::exists(KAON_PYTHON)) {
    std::cerr << "no oracles for language models: " << KAON_PYTHON << " does not exist (make oracles-lm brings it)\n";
    return;
  }
  if (!fs::exists(kText)) {
    std::cerr << kText.string() << " is not there: nothing is measured\n";
    return;
  }
  const fs::path random = scratch("opt-125m");
  const auto folder_of = [random](const std::string& name) {
    if (name != "opt-125m") return kModels / name;
    if (!fs::exists(random / "config.json")) {
      output_of({KAON_PYTHON, KAON_LM_PEER, "opt-125m", random.string(), (kModels / "opt-17m").string()});
    }
    return random;
  };
  const auto push = [&](const std::string& name, const std::string& peer, std::function<Work()> prepare) {
    cases.push_back(
        {.name = name, .peer_name = peer, .unit = "ms", .threads = kThreads, .prepare = std::move(prepare)});
  };
  for (const std::string name : {"opt-17m", "llama-9m", "opt-125m"}) {
    push("ppl/" + name, "transformers", [=] { return perplexity(folder_of(name)); });
  }
  for (const std::string name : {"opt-17m", "llama-9m", "gpt2-5m", "opt-125m"}) {
    push("generate/" + name, "transformers",
         [=] { return generation(folder_of(name), "transformers", folder_of(name)); });
  }
  for (const std::string name : {"llama-9m", "gpt2-5m"}) {
    push("generate/" + name + "/gguf", "llama.cpp",
         [=] { return generation(folder_of(name), "llama", scratch(name + ".gguf")); });
  }
});

}  // namespace

}  // namespace kaon::bench
