#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lm/family.h"

namespace kaon::lm {

/// Keys and values of the tokens so far, for a graph of LanguageModel::whole with a cache. They lie in a room for more
/// tokens than there are, so that a token is added without moving the others, and shapes change seldom.
class KeyValueCache {
 public:
  KeyValueCache(const Graph& graph, const Facts& facts, int64_t samples);

  /// The inputs "past_tokens" and "past.…"; their memory is this object's until the next `add`.
  void put_into(TensorMap& inputs) const;
  /// `outputs` of the run: the graph's, of which those named "new.…" are kept.
  void add(const std::vector<Tensor>& outputs);
  int64_t tokens() const { return tokens_; }

 private:
  struct Part {
    std::string input;
    size_t output;
    std::shared_ptr<float[]> memory;
  };
  void make_room(int64_t tokens);

  Facts facts_;
  int64_t samples_;
  int64_t tokens_ = 0;
  int64_t room_ = 0;
  std::vector<Part> parts_;
};

}  // namespace kaon::lm
