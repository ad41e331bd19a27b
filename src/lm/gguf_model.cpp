#include "lm/gguf_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "lm/family.h"
#include "lm/gguf_names.h"

namespace kaon::lm {

namespace {

const std::string& architecture_of(const GgufFile& file, const std::string& where) {
  static constexpr std::array<std::string_view, 5> kKnown{"llama", "gpt2", "qwen2", "qwen3", "phi3"};
  const auto* name = file.get_if<std::string>("general.architecture");
  if (name == nullptr) fail(ErrorCode::CorruptFile, where, "the key 'general.architecture' is missing");
  if (std::ranges::find(kKnown, *name) == kKnown.end()) {
    fail(ErrorCode::Unsupported, where, "the architecture '{}' is not known; {} are", *name, fmt::join(kKnown, ", "));
  }
  return *name;
}

/// The metadata of one architecture, written into the form of a config.
class ConfigWriter {
 public:
  ConfigWriter(const GgufFile& file, std::string where)
      : file_(file), where_(std::move(where)), architecture_(architecture_of(file, where_)) {}

  Config write() {
    if (const auto* parts = file_.get_if<int64_t>("split.count"); parts != nullptr && *parts > 1) {
      fail(ErrorCode::Unsupported, where_, "one of {} parts of a model; join them with llama-gguf-split", *parts);
    }
    const GgufTensor* table = file_.find("token_embd.weight");
    if (table == nullptr || table->shape.size() != 2) {
      fail(ErrorCode::InvalidInput, where_, "the tensor 'token_embd.weight' is missing: a vocabulary without a model?");
    }
    const bool gpt2 = architecture_ == "gpt2";
    json_["vocab_size"] = table->shape.front();
    json_["tie_word_embeddings"] = file_.find("output.weight") == nullptr;
    copy<int64_t>("block_count", "num_hidden_layers");
    copy<int64_t>("embedding_length", "hidden_size");
    copy<int64_t>("feed_forward_length", gpt2 ? "n_inner" : "intermediate_size");
    copy<int64_t>("attention.head_count", "num_attention_heads");
    copy<int64_t>("attention.head_count_kv", "num_key_value_heads");
    copy<int64_t>("attention.key_length", "head_dim");
    copy<int64_t>("attention.sliding_window", "sliding_window");
    copy<int64_t>("context_length", "max_position_embeddings");
    copy<double>("attention.layer_norm_rms_epsilon", "rms_norm_eps");
    copy<double>("attention.layer_norm_epsilon", "layer_norm_epsilon");
    if (const auto* end = file_.get_if<int64_t>("tokenizer.ggml.eos_token_id")) json_["eos_token_id"] = *end;
    std::string family = architecture_;
    if (family == "llama") {
      json_["attention_bias"] = file_.find("blk.0.attn_q.bias") != nullptr;
      json_["mlp_bias"] = file_.find("blk.0.ffn_down.bias") != nullptr;
      if (json_.contains("sliding_window")) family = "mistral";  // they share the name there
    }
    json_["model_type"] = family;
    if (!gpt2) write_rope();
    return {json_, where_};
  }

 private:
  template <typename T>
  const T* get(const std::string& key) const {
    return file_.get_if<T>(architecture_ + "." + key);
  }

  template <typename T>
  void copy(const std::string& from, const char* to) {
    if (const T* value = get<T>(from)) {
      json_[to] = *value;
    } else if (file_.metadata().contains(architecture_ + "." + from)) {
      fail(ErrorCode::Unsupported, where_, "'{}.{}' is not one number", architecture_, from);
    }
  }

  void write_rope() {
    nlohmann::json rope = nlohmann::json::object();
    if (const auto* base = get<double>("rope.freq_base")) rope["rope_theta"] = *base;
    const auto* turned = get<int64_t>("rope.dimension_count");
    const int64_t heads = std::max<int64_t>(1, json_.value("num_attention_heads", int64_t{1}));
    const int64_t width = json_.value("head_dim", json_.value("hidden_size", int64_t{0}) / heads);
    if (turned != nullptr && width > 0 && *turned != width) {
      rope["partial_rotary_factor"] = static_cast<double>(*turned) / static_cast<double>(width);
    }
    const auto* type = get<std::string>("rope.scaling.type");
    if (type != nullptr && *type != "none") rope["rope_type"] = *type;
    if (const auto* factor = get<double>("rope.scaling.factor")) rope["factor"] = *factor;
    if (const auto* factor = get<double>("rope.scaling.attn_factor")) rope["attention_factor"] = *factor;
    if (const auto* length = get<int64_t>("rope.scaling.original_context_length")) {
      rope["original_max_position_embeddings"] = *length;
    }
    if (file_.find("rope_factors_short.weight") != nullptr) {
      rope["rope_type"] = "longrope";
      rope["short_factor"] = factors("rope_factors_short.weight");
      rope["long_factor"] = factors("rope_factors_long.weight");
    } else if (file_.find("rope_freqs.weight") != nullptr) {
      // Llama 3's scaling comes as the numbers that its frequencies are divided by.
      rope["rope_type"] = "longrope";
      rope["short_factor"] = rope["long_factor"] = factors("rope_freqs.weight");
      rope["attention_factor"] = 1;
    }
    json_["rope_parameters"] = std::move(rope);
  }

  std::vector<float> factors(const std::string& name) const {
    const GgufTensor* tensor = file_.find(name);
    if (tensor == nullptr) fail(ErrorCode::InvalidInput, where_, "the tensor '{}' is missing", name);
    return file_.tensor(*tensor).to_float();
  }

  const GgufFile& file_;
  std::string where_;
  std::string architecture_;
  nlohmann::json json_ = nlohmann::json::object();
};

/// Rows of `tensor` in another order: row i of the result is row from(i).
template <typename From>
Tensor with_rows(const Tensor& tensor, const From& from) {
  const int64_t rows = tensor.shape().front();
  const size_t row = static_cast<size_t>(tensor.byte_size() / std::max<int64_t>(rows, 1));
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.byte_size()));
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(bytes.data() + static_cast<size_t>(i) * row, tensor.bytes().data() + static_cast<size_t>(from(i)) * row,
                row);
  }
  return Tensor::copy_bytes(tensor.type(), tensor.shape(), bytes);
}

Tensor transposed(const Tensor& tensor) {
  const int64_t rows = tensor.shape()[0], columns = tensor.shape()[1];
  const std::vector<float> values = tensor.to_float();
  std::vector<float> turned(values.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      turned[static_cast<size_t>(j * rows + i)] = values[static_cast<size_t>(i * columns + j)];
    }
  }
  return Tensor::of<float>({columns, rows}, turned);
}

class GgufWeights : public Weights {
 public:
  GgufWeights(std::shared_ptr<const GgufFile> file, std::string where)
      : file_(std::move(file)), where_(std::move(where)), architecture_(architecture_of(*file_, where_)) {
    if (architecture_ != "llama") return;
    for (const auto& [key, heads] :
         {std::pair{"llama.attention.head_count", &heads_}, std::pair{"llama.attention.head_count_kv", &kv_heads_}}) {
      if (const auto* count = file_->get_if<int64_t>(key)) *heads = *count;
    }
    if (kv_heads_ == 0) kv_heads_ = heads_;
  }

  std::optional<Shape> shape(const std::string& name) const override {
    const GgufTensor* tensor = find(name);
    if (tensor == nullptr) return std::nullopt;
    Shape shape = tensor->shape;
    if (is_turned(name)) std::ranges::reverse(shape);
    return shape;
  }

  Tensor tensor(const std::string& name) const override {
    Tensor tensor = file_->tensor(*find(name));
    if (is_turned(name)) return transposed(tensor);
    const int64_t heads = name.find(".q_proj.") != std::string::npos   ? heads_
                          : name.find(".k_proj.") != std::string::npos ? kv_heads_
                                                                       : 0;
    if (heads == 0) return tensor;
    // llama.cpp turns neighbours, the hub's layout the two halves of a head.
    const int64_t width = tensor.shape().front() / heads;
    if (width * heads != tensor.shape().front() || width % 2 != 0) {
      fail(ErrorCode::InvalidInput, where_, "{} rows of '{}' are no {} heads", tensor.shape().front(), name, heads);
    }
    return with_rows(tensor, [width](int64_t row) {
      const int64_t in_head = row % width;
      return row - in_head + in_head % (width / 2) * 2 + in_head / (width / 2);
    });
  }

  std::string where(const std::string&) const override { return where_; }

  int64_t parameters() const override {
    int64_t sum = 0;
    for (const GgufTensor& tensor : file_->tensors()) sum += element_count(tensor.shape);
    return sum;
  }

  int64_t bytes() const override {
    int64_t sum = 0;
    for (const GgufTensor& tensor : file_->tensors()) sum += std::ssize(tensor.data);
    return sum;
  }

 private:
  bool is_turned(const std::string& name) const { return is_turned_in_gguf(architecture_, name); }

  const GgufTensor* find(const std::string& name) const {
    const std::string stored = gguf_tensor_name(architecture_, name);
    return stored.empty() ? nullptr : file_->find(stored);
  }

  std::shared_ptr<const GgufFile> file_;
  std::string where_;
  std::string architecture_;
  int64_t heads_ = 0;  ///< of Llama, whose queries and keys are stored in another order; else 0
  int64_t kv_heads_ = 0;
};

}  // namespace

Config gguf_config(const GgufFile& file, const std::string& where) { return ConfigWriter(file, where).write(); }

std::unique_ptr<Weights> gguf_weights(std::shared_ptr<const GgufFile> file, const std::string& where) {
  return std::make_unique<GgufWeights>(std::move(file), where);
}

}  // namespace kaon::lm
