// OPT: learned positions that begin at 2, ReLU, biases; the 350M model norms after instead of before and is narrower
// outside its blocks.
#include "base/error.h"
#include "lm/family.h"

namespace kaon {

namespace {

using lm::Builder;
using lm::Config;
using lm::Facts;

constexpr double kEpsilon = 1e-5;
constexpr int64_t kFirstPosition = 2;

class Opt : public lm::Family {
 public:
  Opt(const Facts& facts, const Config& config)
      : Family(facts),
        embedded_width_(config.size({"word_embed_proj_dim"}, lm::kMostWidth, facts.width)),
        bias_(config.flag({"enable_bias"}, true)),
        norm_before_(config.flag({"do_layer_norm_before"}, true)),
        final_norm_(norm_before_ && !config.flag({"_remove_final_layer_norm"}, false)),
        activation_(config.text({"activation_function"}, "relu")) {
    if (!config.flag({"layer_norm_elementwise_affine"}, true)) {
      fail(ErrorCode::Unsupported, config.where(), "'layer_norm_elementwise_affine' is false");
    }
  }

  std::string embedding(Builder& build) const override {
    const std::string name = "model.decoder.";
    std::string x = build.embedding(name + "embed_tokens", build.input_ids(), facts().vocabulary, embedded_width_);
    if (embedded_width_ != facts().width) {
      x = build.linear(name + "project_in", x, embedded_width_, facts().width, false);
    }
    const std::string places = build.embedding(name + "embed_positions", build.positions(kFirstPosition),
                                               facts().positions + kFirstPosition, facts().width);
    return build.add(name + "embedded", x, places);
  }

  std::string block(Builder& build, int64_t layer, const std::string& x) const override {
    const int64_t width = facts().width;
    const std::string name = fmt::format("model.decoder.layers.{}", layer);
    const std::string attention = name + ".self_attn";
    std::string y = norm_before_ ? build.layer_norm(name + ".self_attn_layer_norm", x, width, kEpsilon) : x;
    const auto project = [&](const char* part) {
      return build.unfold(build.linear(attention + part, y, width, width, bias_), width);
    };
    const std::string q = project(".q_proj"), k = project(".k_proj"), v = project(".v_proj");
    y = build.attention(attention, layer, q, k, v, {facts().heads, facts().heads, facts().head_width});
    y = build.linear(attention + ".out_proj", y, width, width, bias_);
    std::string middle = build.add(attention + ".residual", x, y);
    if (!norm_before_) middle = build.layer_norm(name + ".self_attn_layer_norm", middle, width, kEpsilon);
    y = norm_before_ ? build.layer_norm(name + ".final_layer_norm", middle, width, kEpsilon) : middle;
    y = build.linear(name + ".fc1", y, width, facts().inner_width, bias_);
    y = build.activation(name + ".activation_fn", activation_, y);
    y = build.linear(name + ".fc2", y, facts().inner_width, width, bias_);
    y = build.add(name + ".residual", middle, y);
    return norm_before_ ? y : build.layer_norm(name + ".final_layer_norm", y, width, kEpsilon);
  }

  void head(Builder& build, const std::string& x) const override {
    const int64_t width = facts().width;
    std::string y = final_norm_ ? build.layer_norm("model.decoder.final_layer_norm", x, width, kEpsilon) : x;
    if (embedded_width_ != width) y = build.linear("model.decoder.project_out", y, width, embedded_width_, false);
    const std::string logits = facts().tied ? build.tied_linear("lm_head", "model.decoder.embed_tokens.weight", y,
                                                                embedded_width_, facts().vocabulary)
                                            : build.linear("lm_head", y, embedded_width_, facts().vocabulary, false);
    build.row_output("logits", logits, facts().vocabulary);
  }

 private:
  int64_t embedded_width_;
  bool bias_;
  bool norm_before_;
  bool final_norm_;
  std::string activation_;
};

}  // namespace

void register_opt(Registry<lm::FamilyKind>& families) {
  families.add("opt",
               {.summary = "OPT", .prefix = "model.", .make = [](const Config& config) -> std::unique_ptr<lm::Family> {
                  Facts facts = lm::common_facts(config);
                  facts.inner_width = config.size({"ffn_dim"}, lm::kMostWidth);
                  facts.tied = config.flag({"tie_word_embeddings"}, true);
                  return std::make_unique<Opt>(facts, config);
                }});
}

}  // namespace kaon
