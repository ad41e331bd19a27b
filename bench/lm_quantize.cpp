// File to file: a random Llama of 1.1 billion parameters in bfloat16, quantized without a forward run, beside `cp` of
// the same warm files; and the anonymous memory that it takes.
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
#include "bench.h"
#include "child.h"
#include "io/safetensors/safetensors_draft.h"
#include "numerics/half.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

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

const bool kAdded = add([](Cases& cases) {
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
