#include "lm/family.h"

#include "base/error.h"

namespace kaon::lm {

const Registry<FamilyKind>& families() {
  static const Registry<FamilyKind> registry = [] {
    Registry<FamilyKind> all("family");
    register_all_families(all);
    return all;
  }();
  return registry;
}

Facts common_facts(const Config& config) {
  Facts facts;
  facts.layers = config.size({"num_hidden_layers", "n_layer"}, kMostLayers);
  facts.width = config.size({"hidden_size", "n_embd"}, kMostWidth);
  facts.heads = config.size({"num_attention_heads", "n_head"}, kMostHeads);
  facts.kv_heads = config.size({"num_key_value_heads"}, kMostHeads, facts.heads);
  facts.vocabulary = config.size({"vocab_size"}, kMostVocabulary);
  facts.positions = config.size({"max_position_embeddings", "n_positions"}, kMostPositions);
  if (!config.has({"head_dim"}) && facts.width % facts.heads != 0) {
    fail(ErrorCode::InvalidConfig, config.where(), "{} heads do not divide a width of {}", facts.heads, facts.width);
  }
  facts.head_width = config.size({"head_dim"}, kMostWidth, facts.width / facts.heads);
  if (facts.heads % facts.kv_heads != 0) {
    fail(ErrorCode::InvalidConfig, config.where(), "{} key heads do not divide {} query heads", facts.kv_heads,
         facts.heads);
  }
  return facts;
}

}  // namespace kaon::lm
