// GPT-2: learned positions, weights stored [in, out], one product for queries, keys and values.
#include <cmath>

#include "base/error.h"
#include "lm/family.h"

namespace kaon {

namespace {

using lm::Builder;
using lm::Config;
using lm::Facts;

class Gpt2 : public lm::Family {
 public:
  Gpt2(const Facts& facts, const Config& config)
      : Family(facts),
        epsilon_(config.number({"layer_norm_epsilon"}, 1e-5)),
        activation_(config.text({"activation_function"}, "gelu_new")),
        scaled_(config.flag({"scale_attn_weights"}, true)),
        scaled_by_layer_(config.flag({"scale_attn_by_inverse_layer_idx"}, false)) {}

  std::string embedding(Builder& build) const override {
    const std::string ids = build.input_ids();
    const std::string tokens = build.embedding("transformer.wte", ids, facts().vocabulary, facts().width);
    const std::string places = build.embedding("transformer.wpe", build.positions(), facts().positions, facts().width);
    return build.add("transformer.embedded", tokens, places);
  }

  std::string block(Builder& build, int64_t layer, const std::string& x) const override {
    const int64_t width = facts().width;
    const std::string name = fmt::format("transformer.h.{}", layer);
    const std::string normed = build.layer_norm(name + ".ln_1", x, width, epsilon_);
    const std::string all = build.linear_in_out(name + ".attn.c_attn", normed, width, 3 * width);
    const std::vector<std::string> parts = build.split(name + ".attn.c_attn", all, {width, width, width});
    lm::AttentionShape shape{facts().heads, facts().heads, facts().head_width};
    shape.scale = (scaled_ ? 1 / std::sqrt(static_cast<float>(facts().head_width)) : 1) /
                  static_cast<float>(scaled_by_layer_ ? layer + 1 : 1);
    std::string y = build.attention(name + ".attn", layer, build.unfold(parts[0], width), build.unfold(parts[1], width),
                                    build.unfold(parts[2], width), shape);
    y = build.linear_in_out(name + ".attn.c_proj", y, width, width);
    const std::string middle = build.add(name + ".attn.residual", x, y);
    y = build.layer_norm(name + ".ln_2", middle, width, epsilon_);
    y = build.linear_in_out(name + ".mlp.c_fc", y, width, facts().inner_width);
    y = build.activation(name + ".mlp.act", activation_, y);
    y = build.linear_in_out(name + ".mlp.c_proj", y, facts().inner_width, width);
    return build.add(name + ".mlp.residual", middle, y);
  }

  void head(Builder& build, const std::string& x) const override {
    const std::string y = build.layer_norm("transformer.ln_f", x, facts().width, epsilon_);
    const std::string logits =
        facts().tied ? build.tied_linear("lm_head", "transformer.wte.weight", y, facts().width, facts().vocabulary)
                     : build.linear("lm_head", y, facts().width, facts().vocabulary, false);
    build.row_output("logits", logits, facts().vocabulary);
  }

 private:
  double epsilon_;
  std::string activation_;
  bool scaled_;
  bool scaled_by_layer_;
};

}  // namespace

void register_gpt2(Registry<lm::FamilyKind>& families) {
  families.add("gpt2", {.summary = "GPT-2 and its descendants with the same layers",
                        .prefix = "transformer.",
                        .make = [](const Config& config) -> std::unique_ptr<lm::Family> {
                          Facts facts = lm::common_facts(config);
                          facts.inner_width = config.size({"n_inner"}, lm::kMostWidth, 4 * facts.width);
                          facts.tied = config.flag({"tie_word_embeddings"}, true);
                          return std::make_unique<Gpt2>(facts, config);
                        }});
}

}  // namespace kaon
