#include "api/quantize_gguf.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "api/column_importance.h"
#include "api/folder_plan.h"
#include "api/load_model.h"
#include "base/error.h"
#include "base/memory_usage.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "engine/engine.h"
#include "lm/gguf_export.h"
#include "lm/gguf_model.h"
#include "lm/gguf_names.h"
#include "text/vocabulary.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

/// What a scheme gives to most matrices and to the head.
struct Mixture {
  std::string_view name;
  int file_type;  ///< general.file_type
  const char* usual;
  const char* head;
};

constexpr Mixture kMixtures[] = {
    {"f32", 0, "F32", "F32"},       {"f16", 1, "F16", "F16"},         {"bf16", 32, "BF16", "BF16"},
    {"q8_0", 7, "Q8_0", "Q8_0"},    {"q4_0", 2, "Q4_0", "Q6_K"},      {"q4_1", 3, "Q4_1", "Q6_K"},
    {"q5_0", 8, "Q5_0", "Q6_K"},    {"q5_1", 9, "Q5_1", "Q6_K"},      {"q2_k", 10, "Q2_K", "Q6_K"},
    {"q3_k_m", 12, "Q3_K", "Q6_K"}, {"q4_k_m", 15, "Q4_K", "Q6_K"},   {"q5_k_m", 17, "Q5_K", "Q6_K"},
    {"q6_k", 18, "Q6_K", "Q6_K"},   {"iq4_nl", 25, "IQ4_NL", "Q6_K"}, {"mxfp4", 38, "MXFP4", "Q8_0"}};

const Mixture* find_mixture(const std::string& name) {
  std::string lower = name;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto row = std::ranges::find(kMixtures, lower, &Mixture::name);
  return row == std::end(kMixtures) ? nullptr : row;
}

/// The type that takes rows which are no whole super-blocks, as llama.cpp chooses it.
const GgufType& fitting(const char* name, int64_t row) {
  const GgufType* type = &gguf_type(name);
  if (row % type->block == 0) return *type;
  constexpr std::pair<std::string_view, const char*> kSmaller[] = {
      {"Q2_K", "IQ4_NL"}, {"Q3_K", "IQ4_NL"}, {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}};
  for (const auto& [wide, smaller] : kSmaller) {
    if (type->name == wide) type = &gguf_type(smaller);
  }
  return row % type->block == 0 ? *type : gguf_type("F16");
}

/// The first and last eighth of the blocks, and every third between.
bool wants_more(int64_t layer, int64_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// A matrix of a block, and what decides how many bits it gets.
struct BlockMatrix {
  std::string part;  ///< "attn_v"
  int64_t layer = 0;
  int64_t layers = 0;
  int64_t heads_each = 1;   ///< heads that share keys and values
  bool calibrated = false;  ///< importance is known
};

/// The types that llama.cpp's mixtures give to the matrices that hurt.
const char* type_in(const Mixture& mixture, const BlockMatrix& matrix) {
  const std::string& part = matrix.part;
  const bool value = part == "attn_v", down = part == "ffn_down", output = part == "attn_output",
             qkv = part == "attn_qkv";
  const bool shared = matrix.heads_each >= 4;
  if (mixture.name == "q2_k") {
    if (value) return shared ? "Q4_K" : "Q3_K";
    if (down || output) return "Q3_K";
  } else if (mixture.name == "q3_k_m") {
    if (value) return matrix.layer < 2 ? "Q5_K" : "Q4_K";
    if (down) return matrix.layer < matrix.layers / 16 ? "Q5_K" : "Q4_K";
    if (output || qkv) return "Q4_K";
  } else if (mixture.name == "q4_k_m" || mixture.name == "q5_k_m") {
    if ((value || down) && wants_more(matrix.layer, matrix.layers)) return "Q6_K";
    if (qkv) return mixture.name == "q4_k_m" ? "Q5_K" : "Q6_K";
  } else if (mixture.name == "iq4_nl") {
    if (value && shared) return "Q5_K";
    if (down && !matrix.calibrated && matrix.layer < matrix.layers / 8) return "Q5_K";
  }
  return mixture.usual;
}

struct Source {
  std::string hub;  ///< its name on the hub
  const Tensor* tensor = nullptr;
  GgufPlanned planned;
};

using Importance = std::map<std::string, std::vector<float>>;  ///< of columns, by layer

/// That of a tensor's columns; none where nothing is known.
std::span<const float> importance_of(const Importance& known, const Source& source) {
  const auto found = known.find(source.hub.substr(0, source.hub.rfind('.')));
  const bool fits =
      found != known.end() && source.planned.shape.size() == 2 && std::ssize(found->second) == source.planned.shape[1];
  return fits ? std::span<const float>(found->second) : std::span<const float>();
}

std::vector<std::byte> rounded(const lm::LanguageModel& model, const Source& source, const Importance& importance) {
  std::vector<std::byte> bytes(static_cast<size_t>(source.planned.bytes()));
  gguf_quantize(*source.planned.type, lm::to_gguf_order(model, source.hub, *source.tensor), bytes,
                importance_of(importance, source));
  return bytes;
}

class GgufQuantizer {
 public:
  GgufQuantizer(const fs::path& in, const fs::path& out, const Mixture& mixture,
                const std::vector<std::string>& exclude)
      : in_(in),
        out_(out),
        mixture_(mixture),
        exclude_(exclude),
        model_(lm::LanguageModel::open(in)),
        checkpoint_(read_checkpoint(in)),
        architecture_(lm::gguf_architecture(model_, in.string())) {
    if (model_.config().has({"quantization_config"})) {
      fail(ErrorCode::InvalidInput, in.string(), "is quantized already; a float checkpoint is needed");
    }
  }

  QuantizeReport run(const DataOptions& data, Progress& progress) {
    find_sources(!data.calib.empty());
    if (!data.calib.empty()) look_at(data, progress);
    std::vector<GgufPlanned> tensors;
    for (const Source& source : sources_) tensors.push_back(source.planned);
    const std::vector<float> factors = lm::gguf_rope_factors(model_);
    if (!factors.empty()) tensors.push_back({"rope_freqs.weight", {std::ssize(factors)}, &gguf_type("F32")});
    GgufWriter writer(out_, metadata(), tensors);
    progress.begin("tensors", std::ssize(sources_));
    for (int64_t i = 0; i < std::ssize(sources_); ++i) {
      writer.write(rounded(model_, sources_[static_cast<size_t>(i)], importance_));
      progress.at(i + 1);
    }
    if (!factors.empty()) writer.write(std::as_bytes(std::span(factors)));
    progress.end();
    writer.finish();
    check(writer.temporary());
    report_.bytes_before = model_.bytes();
    report_.bytes_after = writer.bytes();
    writer.commit();
    return std::move(report_);
  }

 private:
  static constexpr int64_t kStatesInMemory = int64_t{1} << 30;

  void look_at(const DataOptions& options, Progress& progress) {
    DataOptions text = options;
    if (!text.tokenizer) text.tokenizer = tokenizer_of(in_);
    const Stopwatch watch;
    const std::unique_ptr<Dataset> data = open_calibration(text, model_.embedding().graph);
    importance_ = column_importance(model_, *data, text.batch, kStatesInMemory, progress);
    report_.calibration = {data->size(), watch.seconds()};
  }

  void find_sources(bool calibrated) {
    const std::string prefix = lm::families().get(model_.family_name()).prefix;
    for (const auto& [stored, at] : checkpoint_) {
      std::string hub = stored;
      std::string name = lm::gguf_tensor_name(architecture_, hub);
      if (name.empty()) {
        hub = prefix + stored;
        name = lm::gguf_tensor_name(architecture_, hub);
      }
      if (name.empty()) {
        report_.notes.push_back(fmt::format("'{}' has no place in GGUF and is left out", stored));
        continue;
      }
      if (name == "output.weight" && model_.facts().tied) continue;
      Shape shape = at.tensor.shape();
      if (lm::is_turned_in_gguf(architecture_, hub)) std::ranges::reverse(shape);
      const GgufType& type = type_of(name, shape, calibrated);
      if (type.block > 1) {
        report_.layers.push_back(name.substr(0, name.rfind('.')));
        ++report_.quantizers;
      }
      sources_.push_back({hub, &at.tensor, {name, std::move(shape), &type}});
    }
    std::ranges::stable_sort(sources_, {}, [](const Source& s) { return place_of(s.planned.name); });
  }

  /// Embeddings, blocks by number, then the rest.
  static std::pair<int64_t, std::string> place_of(const std::string& name) {
    if (name.starts_with("blk.")) return {std::stoll(name.substr(4)), name};
    return {name.find("_embd") != std::string::npos ? -1 : int64_t{1} << 40, name};
  }

  const GgufType& type_of(const std::string& name, const Shape& shape, bool calibrated) {
    if (shape.size() != 2 || name.starts_with("position_embd")) return gguf_type("F32");
    const std::string layer = name.substr(0, name.rfind('.'));
    const bool excluded =
        std::ranges::any_of(exclude_, [&](const std::string& glob) { return glob_match(glob, layer); });
    if (excluded) return gguf_type("F16");
    const bool head = name == "output.weight" || (name == "token_embd.weight" && model_.facts().tied);
    const char* wanted = head ? mixture_.head : mixture_.usual;
    if (layer.starts_with("blk.")) {
      const lm::Facts& facts = model_.facts();
      wanted = type_in(mixture_, {layer.substr(layer.rfind('.') + 1), place_of(name).first, facts.layers,
                                  facts.heads / std::max<int64_t>(1, facts.kv_heads), calibrated});
    }
    const GgufType& type = fitting(wanted, shape.back());
    if (type.name != wanted) {
      report_.skipped.push_back(
          {layer, fmt::format("is {}: rows of {} are no whole blocks of {}", type.name, shape.back(), wanted)});
    }
    return type;
  }

  GgufMetadata metadata() {
    GgufMetadata keys{{"general.architecture", architecture_},
                      {"general.type", std::string("model")},
                      {"general.name", fs::absolute(in_).lexically_normal().filename().string()}};
    for (auto& row : lm::gguf_architecture_keys(model_, in_.string())) keys.push_back(std::move(row));
    keys.emplace_back("general.file_type", int64_t{mixture_.file_type});
    keys.emplace_back("general.quantization_version", int64_t{2});
    if (!fs::exists(in_ / "tokenizer.json")) {
      report_.notes.emplace_back("no tokenizer.json in the folder: the file has no tokenizer");
      keys.emplace_back("tokenizer.ggml.model", std::string("none"));
      return keys;
    }
    Vocabulary vocabulary = read_json_vocabulary(in_ / "tokenizer.json");
    // llama.cpp wants a token for every row of the embedding.
    for (int64_t id = std::ssize(vocabulary.tokens); id < model_.facts().vocabulary; ++id) {
      vocabulary.tokens.push_back(fmt::format("[PAD{}]", id));
      vocabulary.types.push_back(5);
      if (!vocabulary.scores.empty()) vocabulary.scores.push_back(0);
    }
    const auto add = [&](const char* key, GgufValue value) {
      keys.emplace_back(std::string("tokenizer.ggml.") + key, std::move(value));
    };
    add("model", vocabulary.model);
    add("pre", vocabulary.pre);
    add("tokens", vocabulary.tokens);
    if (!vocabulary.scores.empty())
      add("scores", std::vector<double>(vocabulary.scores.begin(), vocabulary.scores.end()));
    add("token_type", std::vector<int64_t>(vocabulary.types.begin(), vocabulary.types.end()));
    if (!vocabulary.merges.empty()) add("merges", vocabulary.merges);
    const lm::Config& config = model_.config();
    for (const auto& [key, from] : {std::pair{"bos_token_id", "bos_token_id"},
                                    {"eos_token_id", "eos_token_id"},
                                    {"padding_token_id", "pad_token_id"}}) {
      if (config.has({from})) add(key, config.integers({from}).front());
    }
    const auto unknown = std::ranges::find(vocabulary.types, 2);
    if (unknown != vocabulary.types.end()) add("unknown_token_id", int64_t{unknown - vocabulary.types.begin()});
    add("add_bos_token", vocabulary.add_bos.value_or(false));
    add("add_eos_token", false);
    if (vocabulary.add_space_prefix) add("add_space_prefix", *vocabulary.add_space_prefix);
    return keys;
  }

  /// The file's first and last block and its head, against the float model with the same matrices rounded.
  void check(const fs::path& temporary) {
    const lm::LanguageModel file = lm::LanguageModel::open_gguf(temporary);
    std::vector<int64_t> ids;
    constexpr int64_t kTokens = 16;
    for (int64_t i = 0; i < 2 * kTokens; ++i) ids.push_back((i * 7919 + 13) % model_.facts().vocabulary);
    const TensorMap tokens{{"input_ids", Tensor::of<int64_t>({2, kTokens}, ids)}};
    const lm::LanguageModel same = rounded_model();
    const auto run = [](Model part, const Tensor& hidden) {
      return Engine(std::move(part)).run({{"hidden", hidden}}).front();
    };
    const Tensor hidden = Engine(same.embedding()).run(tokens).front();
    double worst = distance(hidden, Engine(file.embedding()).run(tokens).front());
    for (const int64_t i : std::set<int64_t>{0, model_.facts().layers - 1}) {
      worst = std::max(worst, distance(run(same.block(i), hidden), run(file.block(i), hidden)));
    }
    worst = std::max(worst, distance(run(same.head(), hidden), run(file.head(), hidden)));
    if (!(worst <= 1e-4)) {
      fail(ErrorCode::Internal, out_.string(), "what was written does not give what was rounded: off by {:.2g}", worst);
    }
    report_.notes.push_back(fmt::format("read back: embedding, first and last block and head agree to {:.1e}", worst));
  }

  static double distance(const Tensor& a, const Tensor& b) {
    const std::vector<float> x = a.to_float(), y = b.to_float();
    double lost = 0, all = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      lost += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2);
      all += std::pow(static_cast<double>(x[i]), 2);
    }
    return x.size() == y.size() ? std::sqrt(lost / std::max(all, 1e-300)) : INFINITY;
  }

  /// The tensors of the folder, each through its type and back.
  class Rounded : public lm::Weights {
   public:
    Rounded(const GgufQuantizer& from) : from_(from) {}
    std::optional<Shape> shape(const std::string& name) const override {
      const Source* source = find(name);
      return source == nullptr ? std::nullopt : std::optional(source->tensor->shape());
    }
    Tensor tensor(const std::string& name) const override;
    std::string where(const std::string&) const override { return from_.in_.string(); }
    int64_t parameters() const override { return 0; }
    int64_t bytes() const override { return 0; }

   private:
    const Source* find(const std::string& name) const {
      const auto it = std::ranges::find(from_.sources_, name, &Source::hub);
      return it == from_.sources_.end() ? nullptr : &*it;
    }
    const GgufQuantizer& from_;
  };

  lm::LanguageModel rounded_model() const {
    return lm::LanguageModel::of(model_.family_name(), model_.config(), std::make_unique<Rounded>(*this));
  }

  fs::path in_, out_;
  const Mixture& mixture_;
  const std::vector<std::string>& exclude_;
  lm::LanguageModel model_;
  Checkpoint checkpoint_;
  std::string architecture_;
  std::vector<Source> sources_;
  Importance importance_;
  QuantizeReport report_;
};

Tensor GgufQuantizer::Rounded::tensor(const std::string& name) const {
  // Rounding goes along rows, which only change their order: as the hub has it, but for the matrices that are turned.
  const Source& source = *find(name);
  const GgufType& type = *source.planned.type;
  const bool turned = lm::is_turned_in_gguf(from_.architecture_, name);
  const std::vector<float> values =
      turned ? lm::to_gguf_order(from_.model_, name, *source.tensor) : source.tensor->to_float();
  std::vector<std::byte> bytes(static_cast<size_t>(source.planned.bytes()));
  gguf_quantize(type, values, bytes, importance_of(from_.importance_, source));
  std::vector<float> back(values.size());
  if (type.dequantize == nullptr) {
    back = Tensor::copy_bytes(type.plain, source.planned.shape, bytes).to_float();
  } else {
    for (size_t i = 0; i < back.size() / static_cast<size_t>(type.block); ++i) {
      type.dequantize(bytes.data() + i * static_cast<size_t>(type.bytes),
                      back.data() + i * static_cast<size_t>(type.block));
    }
  }
  if (!turned) return Tensor::of<float>(source.tensor->shape(), back);
  const int64_t rows = source.planned.shape[0], cols = source.planned.shape[1];
  std::vector<float> out(back.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) out[static_cast<size_t>(j * rows + i)] = back[static_cast<size_t>(i * cols + j)];
  }
  return Tensor::of<float>(source.tensor->shape(), out);
}

}  // namespace

bool is_gguf_scheme(const std::string& scheme) { return find_mixture(scheme) != nullptr; }

std::vector<std::string> gguf_schemes() {
  std::vector<std::string> names;
  for (const Mixture& mixture : kMixtures) names.emplace_back(mixture.name);
  return names;
}

QuantizeReport quantize_gguf(const fs::path& in, const fs::path& out, const std::string& scheme,
                             const std::vector<std::string>& exclude, const DataOptions& data,
                             const FolderOptions& options) {
  const Stopwatch watch;
  const Mixture* mixture = find_mixture(scheme);
  if (mixture == nullptr) {
    fail(ErrorCode::InvalidConfig, "--scheme", "'{}' is none that GGUF files have; {} are", scheme,
         fmt::join(gguf_schemes(), ", "));
  }
  if (!lm::LanguageModel::is_folder(in)) {
    fail(ErrorCode::InvalidInput, in.string(), "the folder of a language model is needed, with a config.json");
  }
  QuantizeReport report = GgufQuantizer(in, out, *mixture, exclude).run(data, *options.progress);
  report.scheme = std::string(mixture->name);
  report.seconds = watch.seconds();
  report.peak_mb = peak_memory_mb();
  return report;
}

}  // namespace kaon
