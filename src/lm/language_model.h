#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "lm/family.h"

namespace kaon::lm {

/// A language model in a folder of the hub's layout or in a GGUF file, its weights mapped: an embedding, equal blocks
/// and a head, each to be had as a graph of its own, or joined.
class LanguageModel {
 public:
  /// Throws InvalidInput for what is neither, Unsupported for an unknown family or way to quantize, and
  /// whatever the readers throw, naming the file and the key or tensor at fault.
  static LanguageModel open(const std::filesystem::path& path);
  /// A GGUF file under any name.
  static LanguageModel open_gguf(const std::filesystem::path& path);
  /// A model of other tensors.
  static LanguageModel of(std::string family, Config config, std::unique_ptr<Weights> weights);
  /// The tokens that end a text: `eos_token_id` of generation_config.json, else of config.json.
  std::vector<int64_t> end_tokens() const;
  /// A folder with a config.json.
  static bool is_folder(const std::filesystem::path& path);

  const std::string& family_name() const { return name_; }
  const Facts& facts() const { return family_->facts(); }
  const Config& config() const { return config_; }
  int64_t parameters() const { return weights_->parameters(); }
  int64_t bytes() const { return weights_->bytes(); }

  /// "input_ids" [N, T] to "hidden" [N, T, width].
  Model embedding() const;
  /// "hidden" to "hidden_out", both [N, T, width].
  Model block(int64_t layer) const;
  /// "hidden" to "logits" [N, T, vocabulary].
  Model head() const;
  /// "input_ids" to "logits"; with a cache also "past_tokens" and "past.L.key" … to "new.L.key" …: see KeyValueCache.
  Model whole(BuildOptions options = {}) const;

 private:
  LanguageModel(std::string name, Config config, std::unique_ptr<Weights> weights);

  std::string name_;
  Config config_;
  std::optional<Config> generation_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Family> family_;
};

}  // namespace kaon::lm
