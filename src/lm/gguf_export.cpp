#include "lm/gguf_export.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lm/gguf_names.h"
#include "lm/rope.h"

namespace kaon::lm {

namespace {

constexpr std::pair<std::string_view, std::string_view> kArchitectures[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"gpt2", "gpt2"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};

Config rope_config(const Config& config) {
  return config.has({"rope_parameters"}) ? config.inside({"rope_parameters"}) : config.inside({"rope_scaling"});
}

std::string rope_type(const LanguageModel& model) {
  return rope_config(model.config()).text({"rope_type", "type"}, "default");
}

double rope_theta(const LanguageModel& model) {
  return rope_config(model.config()).number({"rope_theta"}, model.config().number({"rope_theta"}, 10000));
}

/// Rows of each head: its two halves one after the other become neighbours.
void interleave_halves(std::vector<float>& values, int64_t heads, int64_t row) {
  const int64_t width = std::ssize(values) / row / heads;
  std::vector<float> result(values.size());
  for (int64_t i = 0; i < heads * width; ++i) {
    const int64_t in_head = i % width;
    const int64_t to = i - in_head + in_head % (width / 2) * 2 + in_head / (width / 2);
    std::copy(values.begin() + i * row, values.begin() + (i + 1) * row, result.begin() + to * row);
  }
  values = std::move(result);
}

}  // namespace

std::string gguf_architecture(const LanguageModel& model, const std::string& where) {
  std::string known;
  for (const auto& [family, architecture] : kArchitectures) {
    if (model.family_name() == family) return std::string(architecture);
    known += (known.empty() ? "" : ", ") + std::string(family);
  }
  fail(ErrorCode::Unsupported, where, "{} cannot be written as GGUF; {} can", model.family_name(), known);
}

GgufMetadata gguf_architecture_keys(const LanguageModel& model, const std::string& where) {
  const std::string architecture = gguf_architecture(model, where);
  const Facts& facts = model.facts();
  GgufMetadata keys;
  const auto add = [&](const char* key, GgufValue value) {
    keys.emplace_back(architecture + "." + key, std::move(value));
  };
  add("context_length", facts.positions);
  add("embedding_length", facts.width);
  add("block_count", facts.layers);
  add("feed_forward_length", facts.inner_width);
  add("attention.head_count", facts.heads);
  add("vocab_size", facts.vocabulary);
  if (architecture == "gpt2") {
    add("attention.layer_norm_epsilon", model.config().number({"layer_norm_epsilon"}, 1e-5));
    if (model.config().flag({"scale_attn_by_inverse_layer_idx"}, false) ||
        !model.config().flag({"scale_attn_weights"}, true)) {
      fail(ErrorCode::Unsupported, where, "attention that is scaled by the layer's number has no place in GGUF");
    }
    return keys;
  }
  add("attention.head_count_kv", facts.kv_heads);
  add("attention.layer_norm_rms_epsilon", model.config().number({"rms_norm_eps"}, 1e-6));
  add("attention.key_length", facts.head_width);
  add("attention.value_length", facts.head_width);
  add("rope.dimension_count", facts.head_width);
  add("rope.freq_base", rope_theta(model));
  const std::string type = rope_type(model);
  if (type == "linear") {
    add("rope.scaling.type", std::string("linear"));
    add("rope.scaling.factor", rope_config(model.config()).number({"factor"}));
  } else if (type != "default" && type != "llama3") {
    fail(ErrorCode::Unsupported, where, "rotary positions of the type '{}' cannot be written as GGUF", type);
  }
  if (model.config().has({"sliding_window"}) && model.config().flag({"use_sliding_window"}, architecture == "llama")) {
    add("attention.sliding_window", model.config().integer({"sliding_window"}, 0));
  }
  return keys;
}

std::vector<float> gguf_rope_factors(const LanguageModel& model) {
  if (model.family_name() == "gpt2" || rope_type(model) != "llama3") return {};
  const Rope scaled = read_rope(model.config(), model.facts().head_width);
  std::vector<float> factors;
  for (int64_t i = 0; i < std::ssize(scaled.frequencies); ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(scaled.width);
    const double plain = 1 / std::pow(rope_theta(model), exponent);
    factors.push_back(static_cast<float>(plain / static_cast<double>(scaled.frequencies[static_cast<size_t>(i)])));
  }
  return factors;
}

std::vector<float> to_gguf_order(const LanguageModel& model, const std::string& hub, const Tensor& tensor) {
  std::vector<float> values = tensor.to_float();
  const std::string architecture = gguf_architecture(model, hub);
  if (is_turned_in_gguf(architecture, hub) && tensor.rank() == 2) {
    const int64_t rows = tensor.shape()[0], cols = tensor.shape()[1];
    std::vector<float> turned(values.size());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        turned[static_cast<size_t>(j * rows + i)] = values[static_cast<size_t>(i * cols + j)];
      }
    }
    return turned;
  }
  if (architecture != "llama") return values;
  const int64_t row = tensor.rank() == 2 ? tensor.shape()[1] : 1;
  if (hub.find(".q_proj.") != std::string::npos) interleave_halves(values, model.facts().heads, row);
  if (hub.find(".k_proj.") != std::string::npos) interleave_halves(values, model.facts().kv_heads, row);
  return values;
}

}  // namespace kaon::lm
