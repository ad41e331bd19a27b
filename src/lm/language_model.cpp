#include "lm/language_model.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "lm/gguf_model.h"
#include "lm/quantized_weights.h"

namespace kaon::lm {

namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kQuantization = "quantization_config";

const FamilyKind& kind_of(const std::string& name, const Config& config) {
  if (const FamilyKind* kind = families().find(name)) return *kind;
  const std::string known = fmt::format("{}", fmt::join(families().names(), ", "));
  if (name.empty()) config.wrong("model_type", "the family is needed, one of " + known);
  fail(ErrorCode::Unsupported, config.where(), "the family '{}' is not known; {} are", name, known);
}

}  // namespace

bool LanguageModel::is_folder(const fs::path& path) { return fs::is_regular_file(path / kConfig); }

LanguageModel LanguageModel::open(const fs::path& path) {
  if (path.extension() == ".gguf") return open_gguf(path);
  if (!is_folder(path)) {
    fail(ErrorCode::InvalidInput, path.string(), "no language model: a folder with a {} or a .gguf file is needed",
         kConfig);
  }
  Config config = Config::read(path / kConfig);
  const std::string name = config.text({"model_type"}, "");
  const FamilyKind& kind = kind_of(name, config);
  std::unique_ptr<Weights> weights =
      config.has({kQuantization})
          ? quantized_folder_weights(path, config.json()[kQuantization], config.where() + ": " + kQuantization)
          : folder_weights(path);
  LanguageModel model(name, std::move(config), without_prefix(std::move(weights), kind.prefix));
  if (fs::exists(path / kGeneration)) model.generation_ = Config::read(path / kGeneration);
  return model;
}

LanguageModel LanguageModel::open_gguf(const fs::path& path) {
  const auto file = std::make_shared<const GgufFile>(GgufFile::read(path));
  Config config = gguf_config(*file, path.string());
  std::string family = config.text({"model_type"}, "");
  return {std::move(family), std::move(config), gguf_weights(file, path.string())};
}

LanguageModel LanguageModel::of(std::string family, Config config, std::unique_ptr<Weights> weights) {
  return {std::move(family), std::move(config), std::move(weights)};
}

std::vector<int64_t> LanguageModel::end_tokens() const {
  constexpr const char* kKey = "eos_token_id";
  for (const Config* config : {generation_ ? &*generation_ : nullptr, &config_}) {
    if (config != nullptr && config->has({kKey})) return config->integers({kKey});
  }
  return {};
}

LanguageModel::LanguageModel(std::string name, Config config, std::unique_ptr<Weights> weights)
    : name_(std::move(name)),
      config_(std::move(config)),
      weights_(std::move(weights)),
      family_(kind_of(name_, config_).make(config_)) {}

Model LanguageModel::embedding() const {
  Builder build(*weights_, {});
  const std::string rows = family_->embedding(build);
  build.row_output("hidden", rows, facts().width);
  return build.finish(name_ + ".embedding");
}

Model LanguageModel::block(int64_t layer) const {
  Builder build(*weights_, {});
  const std::string rows = family_->block(build, layer, build.hidden_input(facts().width));
  build.row_output("hidden_out", rows, facts().width);
  return build.finish(fmt::format("{}.block.{}", name_, layer));
}

Model LanguageModel::head() const {
  Builder build(*weights_, {});
  family_->head(build, build.hidden_input(facts().width));
  return build.finish(name_ + ".head");
}

Model LanguageModel::whole(BuildOptions options) const {
  Builder build(*weights_, options);
  for (int64_t i = 0; options.cache && i < facts().layers; ++i) {
    build.declare_cache(i, facts().kv_heads, facts().head_width);
  }
  std::string x = family_->embedding(build);
  for (int64_t i = 0; i < facts().layers; ++i) x = family_->block(build, i, x);
  if (options.last_only) x = build.last_rows(x, facts().width);
  family_->head(build, x);
  return build.finish(name_);
}

}  // namespace kaon::lm
