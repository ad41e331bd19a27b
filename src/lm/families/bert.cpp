// BERT as an encoder: hidden states, and their mean over the tokens that count as the embedding of the text.
#include "base/error.h"
#include "lm/family.h"

namespace kaon {

namespace {

using lm::Builder;
using lm::Config;
using lm::Facts;

class Bert : public lm::Family {
 public:
  Bert(const Facts& facts, const Config& config)
      : Family(facts),
        epsilon_(config.number({"layer_norm_eps"}, 1e-12)),
        types_(config.size({"type_vocab_size"}, lm::kMostVocabulary, 2)),
        activation_(config.text({"hidden_act"}, "gelu")) {
    const std::string positions = config.text({"position_embedding_type"}, "absolute");
    if (positions != "absolute") {
      fail(ErrorCode::Unsupported, config.where(), "'position_embedding_type' is '{}'; absolute is known", positions);
    }
  }

  std::string embedding(Builder& build) const override {
    const std::string name = "bert.embeddings.";
    const std::string ids = build.input_ids();
    build.more_ids(kMask);
    const std::string types = build.more_ids("token_type_ids");
    const int64_t width = facts().width;
    std::string x = build.embedding(name + "word_embeddings", ids, facts().vocabulary, width);
    x = build.add(name + "typed", x, build.embedding(name + "token_type_embeddings", types, types_, width));
    x = build.add(name + "placed", x,
                  build.embedding(name + "position_embeddings", build.positions(), facts().positions, width));
    return build.layer_norm(name + "LayerNorm", x, width, epsilon_);
  }

  std::string block(Builder& build, int64_t layer, const std::string& x) const override {
    const int64_t width = facts().width;
    const std::string name = fmt::format("bert.encoder.layer.{}", layer);
    const auto project = [&](const char* part) {
      return build.unfold(build.linear(name + ".attention.self." + part, x, width, width, true), width);
    };
    const std::string q = project("query"), k = project("key"), v = project("value");
    std::string y = build.full_attention(name + ".attention.self", kMask, q, k, v,
                                         {facts().heads, facts().heads, facts().head_width});
    y = build.linear(name + ".attention.output.dense", y, width, width, true);
    y = build.add(name + ".attention.output.residual", y, x);
    const std::string middle = build.layer_norm(name + ".attention.output.LayerNorm", y, width, epsilon_);
    y = build.linear(name + ".intermediate.dense", middle, width, facts().inner_width, true);
    y = build.activation(name + ".intermediate.act", activation_, y);
    y = build.linear(name + ".output.dense", y, facts().inner_width, width, true);
    y = build.add(name + ".output.residual", y, middle);
    return build.layer_norm(name + ".output.LayerNorm", y, width, epsilon_);
  }

  void head(Builder& build, const std::string& x) const override {
    const int64_t width = facts().width;
    build.row_output("last_hidden_state", x, width);
    const std::string scope = "sentence_embedding";
    const auto to_float = static_cast<int64_t>(DType::Float32);
    std::string weights = build.op(scope, "Cast", {kMask}, {{"to", to_float, {}}});
    weights = build.op(scope, "Unsqueeze", {weights, build.ints({2})});
    const std::string states = build.op(scope, "Mul", {build.unfold(x, width), weights});
    const std::string sum = build.op(scope, "ReduceSum", {states, build.ints({1})}, {{"keepdims", int64_t{0}, {}}});
    const std::string count = build.op(scope, "ReduceSum", {weights, build.ints({1})}, {{"keepdims", int64_t{0}, {}}});
    const std::string mean = build.op(scope, "Div", {sum, build.op(scope, "Max", {count, build.number(1e-9F)})});
    build.output("sentence_embedding", mean, {{std::nullopt, "batch"}, {width, {}}});
  }

 private:
  static constexpr const char* kMask = "attention_mask";

  double epsilon_;
  int64_t types_;
  std::string activation_;
};

}  // namespace

void register_bert(Registry<lm::FamilyKind>& families) {
  families.add("bert", {.summary = "BERT encoders: hidden states and their mean",
                        .prefix = "bert.",
                        .make = [](const Config& config) -> std::unique_ptr<lm::Family> {
                          Facts facts = lm::common_facts(config);
                          facts.inner_width = config.size({"intermediate_size"}, lm::kMostWidth);
                          facts.tied = true;
                          facts.causal = false;
                          return std::make_unique<Bert>(facts, config);
                        }});
}

}  // namespace kaon
