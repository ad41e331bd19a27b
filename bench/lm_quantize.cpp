// File to file: a random Llama of 1.1 billion parameters in bfloat16, quantized without a forward run, beside `cp` of
// the same warm files; and the anonymous memory that it takes. GPTQ on small language models beside llm-compressor.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/parallel.h"
#include "base/stopwatch.h"
#include "bench.h"
#include "child.h"
#include "io/safetensors/safetensors_draft.h"
#include "numerics/half.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

const fs::path kModels = KAON_MODELS;
const fs::path kTexts = kModels / ".." / "data" / "text";
constexpr int kWindow = 512, kWindows = 64;  // tokens, and how many GPTQ sees

constexpr int64_t kWidth = 2048, kInner = 5632, kLayers = 22, kHeads = 32, kKeyHeads = 4, kVocabulary = 32000;

/// Two shards, and the config beside them. It is removed with the program.
class RandomLlama {
 public:
  RandomLlama() : folder_(fs::temp_directory_path() / fmt::format("kaon_lm_quantize.{}", ::getpid())) {
    fs::create_directories(model());
    const nlohmann::ordered_json config = {{"architectures", {"LlamaForCausalLM"}},
                                           {"model_type", "llama"},
                                           {"hidden_size", kWidth},
                                           {"intermediate_size", kInner},
                                           {"num_hidden_layers", kLayers},
                                           {"num_attention_heads", kHeads},
                                           {"num_key_value_heads", kKeyHeads},
                                           {"vocab_size", kVocabulary},
                                           {"max_position_embeddings", 2048},
                                           {"rms_norm_eps", 1e-5},
                                           {"tie_word_embeddings", false},
                                           {"torch_dtype", "bfloat16"}};
    std::ofstream(model() / "config.json") << config.dump(2);
    std::vector<PlannedTensor> shards[2];
    const auto add = [&](int shard, const std::string& name, Shape shape) {
      shards[shard].push_back({name + ".weight", DType::BFloat16, std::move(shape)});
    };
    add(0, "model.embed_tokens", {kVocabulary, kWidth});
    add(1, "lm_head", {kVocabulary, kWidth});
    add(1, "model.norm", {kWidth});
    const int64_t keys = kKeyHeads * kWidth / kHeads;
    for (int64_t i = 0; i < kLayers; ++i) {
      const int shard = i < kLayers / 2 ? 0 : 1;
      const std::string block = fmt::format("model.layers.{}.", i);
      for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(shard, block + norm, {kWidth});
      for (const char* name : {"q_proj", "o_proj"}) add(shard, block + "self_attn." + name, {kWidth, kWidth});
      for (const char* name : {"k_proj", "v_proj"}) add(shard, block + "self_attn." + name, {keys, kWidth});
      for (const char* name : {"gate_proj", "up_proj"}) add(shard, block + "mlp." + name, {kInner, kWidth});
      add(shard, block + "mlp.down_proj", {kWidth, kInner});
    }
    nlohmann::ordered_json index;
    for (int s = 0; s < 2; ++s) {
      const std::string name = fmt::format("model-0000{}-of-00002.safetensors", s + 1);
      for (const PlannedTensor& tensor : shards[s]) index["weight_map"][tensor.name] = name;
      write_shard(model() / name, shards[s]);
    }
    std::ofstream(model() / "model.safetensors.index.json") << index.dump(2);
  }
  ~RandomLlama() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  RandomLlama(const RandomLlama&) = delete;
  RandomLlama& operator=(const RandomLlama&) = delete;

  fs::path model() const { return folder_ / "model"; }
  fs::path other(const char* name) const { return folder_ / name; }

 private:
  static void write_shard(const fs::path& path, const std::vector<PlannedTensor>& tensors) {
    SafetensorsDraft draft(path, tensors);
    // A few megabytes of noise, again and again: rounding does not notice.
    std::vector<uint16_t> noise(1 << 21);
    std::mt19937 generator(1);
    std::normal_distribution<float> normal(0, 0.02F);
    for (uint16_t& value : noise) value = float32_to_bfloat16(normal(generator));
    const auto bytes = std::as_bytes(std::span(noise));
    for (const PlannedTensor& tensor : tensors) {
      const int64_t all = 2 * element_count(tensor.shape);
      for (int64_t at = 0; at < all; at += std::ssize(bytes)) {
        draft.write(tensor.name, at, bytes.first(static_cast<size_t>(std::min(all - at, std::ssize(bytes)))));
      }
    }
    draft.finish();
  }

  fs::path folder_;
};

std::shared_ptr<RandomLlama> random_llama() {
  static const auto model = std::make_shared<RandomLlama>();
  return model;
}

std::vector<std::string> quantize_command(const RandomLlama& model, const char* scheme) {
  return {KAON_PROGRAM, "quantize",  model.model().string(),        "--scheme",
          scheme,       "-o",        model.other("out").string(),   "-q",
          "--json",     "--threads", std::to_string(thread_count())};
}

Work file_to_file(const char* scheme) {
  const auto model = random_llama();
  Work work;
  work.kaon = [model, scheme] {
    fs::remove_all(model->other("out"));
    output_of(quantize_command(*model, scheme));
  };
  work.peer = [model] {
    fs::remove_all(model->other("copy"));
    output_of({"/bin/cp", "-r", model->model().string(), model->other("copy").string()});
  };
  return work;
}

/// MiB of anonymous memory that a process has now; nothing when it has ended.
std::optional<double> anonymous_mb(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  }
  return std::nullopt;
}

/// The most that the command took, against the 500 MiB that it may take.
Work memory_of(const char* scheme) {
  const auto model = random_llama();
  Work work;
  work.measure = [model, scheme] {
    fs::remove_all(model->other("out"));
    const Child child = start(quantize_command(*model, scheme));
    double most = 0;
    for (auto now = anonymous_mb(child.pid); now; now = anonymous_mb(child.pid)) {
      most = std::max(most, *now);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    if (stop(child) != 0) fail(ErrorCode::Internal, scheme, "kaon quantize failed");
    return std::pair{most, 500.0};
  };
  return work;
}

/// A model rounded by GPTQ here and by llm-compressor.
struct Rounded {
  double seconds = 0;        ///< of the whole command
  double peers_seconds = 0;  ///< without loading and saving
  double perplexity = 0, peers_perplexity = 0;
};

Rounded round_both(const std::string& name, const nlohmann::json& config) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("kaon_gptq.{}", ::getpid());
  fs::create_directories(folder);
  const auto written = [&](const char* file, const nlohmann::json& json) {
    std::ofstream(folder / file) << json;
    return (folder / file).string();
  };
  const auto windows = [](const char* text) {
    return nlohmann::json{{"text", (kTexts / text).string()}, {"window", kWindow}, {"stride", kWindow}};
  };
  nlohmann::json calibration = windows("docs_calib.txt");
  calibration["limit"] = kWindows;
  const std::string model = (kModels / name).string(), ours = (folder / "ours").string(),
                    theirs = (folder / "theirs").string(), threads = std::to_string(thread_count());
  Rounded rounded;
  const Stopwatch watch;
  output_of({KAON_PROGRAM, "quantize", model, "--config", written("config.json", config), "--calib",
             written("calib.json", calibration), "-o", ours, "-q", "--json", "--threads", threads});
  rounded.seconds = watch.seconds();
  const std::string said =
      output_of({KAON_LLM_COMPRESSOR, KAON_GPTQ_PEER, model, ours, (kTexts / "docs_calib.txt").string(),
                 std::to_string(kWindow), std::to_string(kWindows), threads, theirs});
  rounded.peers_seconds = std::stod(said);
  const std::string valid = written("valid.json", windows("docs_valid.txt"));
  const auto perplexity = [&](const std::string& of) {
    const std::string out =
        output_of({KAON_PROGRAM, "eval", of, "--data", valid, "--metric", "ppl", "-q", "--json", "--threads", threads});
    return nlohmann::json::parse(out).at("metrics").at("ppl").get<double>();
  };
  rounded.perplexity = perplexity(ours);
  rounded.peers_perplexity = perplexity(theirs);
  fs::remove_all(folder);
  return rounded;
}

void add_gptq(Cases& cases) {
  if (!fs::exists(KAON_LLM_COMPRESSOR)) {
    std::cerr << "no llm-compressor: " << KAON_LLM_COMPRESSOR << " does not exist (make oracles-gptq brings it)\n";
    return;
  }
  if (!fs::exists(kTexts)) {
    std::cerr << kTexts.string() << " is not there: GPTQ is not measured\n";
    return;
  }
  const nlohmann::json uint3 = {
      {"weight", {{"format", "uint3"}, {"granularity", "per_group"}, {"group_size", 32}, {"symmetric", false}}}};
  const std::pair<const char*, nlohmann::json> kConfigs[] = {
      {"w4c", {{"scheme", "w4c"}}}, {"w4g32", {{"scheme", "w4g32"}}}, {"uint3g32", {{"global", uint3}}}};
  for (const char* name : {"opt-17m", "llama-9m"}) {
    for (const auto& [scheme, config] : kConfigs) {
      const auto rounded = std::make_shared<std::optional<Rounded>>();
      const auto both = [=, config = config] {
        nlohmann::json with = config;
        with["algorithms"] = {"gptq"};
        if (!*rounded) *rounded = round_both(name, with);
        return **rounded;
      };
      const auto push = [&](const char* what, const char* unit, std::function<std::pair<double, double>()> measure) {
        cases.push_back({.name = fmt::format("{}/{}/gptq/{}", name, scheme, what),
                         .peer_name = "llm-compressor",
                         .unit = unit,
                         .prepare = [measure = std::move(measure)] { return Work{.measure = measure}; }});
      };
      push("time", "s", [both] { return std::pair{both().seconds, both().peers_seconds}; });
      push("perplexity", "", [both] { return std::pair{both().perplexity, both().peers_perplexity}; });
    }
  }
}

const bool kAdded = add([](Cases& cases) {
  add_gptq(cases);
  for (const char* scheme : {"w4g128", "fp8d", "mxfp4"}) {
    cases.push_back({.name = fmt::format("llama-1.1b/{}/file to file", scheme),
                     .peer_name = "cp",
                     .unit = "GB/s",
                     .amount = 2.2,
                     .prepare = [scheme] { return file_to_file(scheme); }});
    cases.push_back({.name = fmt::format("llama-1.1b/{}/memory", scheme),
                     .peer_name = "the bound",
                     .unit = "MiB",
                     .prepare = [scheme] { return memory_of(scheme); }});
  }
});

}  // namespace

}  // namespace kaon::bench
