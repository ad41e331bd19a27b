#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "lm/rope.h"
#include "lm/weights.h"

namespace kaon::lm {

struct BuildOptions {
  bool cache = false;      ///< blocks take the keys and values of earlier tokens and give those of the new ones
  bool last_only = false;  ///< logits of each sample's last token alone: [N, 1, vocabulary]
};

/// How one attention looks at its tokens.
struct AttentionShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_width = 1;
  std::optional<float> scale;  ///< of the scores; else 1/√head_width
  float softcap = 0;
  int64_t window = 0;  ///< tokens that a token sees, itself included; 0 = all before it
};

/// Builds the graph of a language model or of a part of it. Between its parts values are rows [N·T, width]: products
/// are Gemm nodes that read the weights as they are stored. Weights keep their names; matrices of 16 bits stay as they
/// lie in the file, behind a Cast that carries the name.
class Builder {
 public:
  Builder(const Weights& weights, BuildOptions options);

  /// The input "input_ids" [N, T]; N and T of everything else follow it.
  std::string input_ids();
  /// An input [N, T] of int64 beside it.
  std::string more_ids(const std::string& name);
  /// The input "hidden" [N, T, width] of a part that has no tokens, as rows.
  std::string hidden_input(int64_t width);
  /// Rows [N·T, width] as the output `name` [N, T, width].
  void row_output(const std::string& name, const std::string& rows, int64_t width);
  /// Any value as an output.
  void output(const std::string& name, const std::string& value, std::vector<Dim> shape);

  /// With a cache: the inputs "past.L.key" and "past.L.value" [N, kv_heads, room, head_width] of this layer, of which
  /// the first `past_tokens` [1] count, and the outputs "new.L.…" [N, T, kv_heads · head_width]. Shapes stay the same
  /// from token to token. Comes before anything that depends on positions.
  void declare_cache(int64_t layer, int64_t kv_heads, int64_t head_width);

  /// The last token's rows of each sample; from here on T is 1.
  std::string last_rows(const std::string& rows, int64_t width);

  bool has_weight(const std::string& name) const { return weights_.shape(name).has_value(); }
  /// A weight as float32. Throws where it is missing or its shape is another.
  std::string weight(const std::string& name, const Shape& shape);

  /// x · Wᵀ, W stored [outputs, inputs] as `name`.weight; with `name`.bias where asked for.
  std::string linear(const std::string& name, const std::string& x, int64_t inputs, int64_t outputs, bool bias);
  /// The same with W stored [inputs, outputs].
  std::string linear_in_out(const std::string& name, const std::string& x, int64_t inputs, int64_t outputs);
  /// A product with another layer's table, under a name of its own: the tied head.
  std::string tied_linear(const std::string& name, const std::string& table, const std::string& x, int64_t inputs,
                          int64_t outputs);
  /// Rows of the table `name`.weight as rows [N·T, width]; `ids` [N, T].
  std::string embedding(const std::string& name, const std::string& ids, int64_t entries, int64_t width);
  std::string layer_norm(const std::string& name, const std::string& x, int64_t width, double epsilon);
  /// With `plus_one` the factor is 1 + weight.
  std::string rms_norm(const std::string& name, const std::string& x, int64_t width, double epsilon,
                       bool plus_one = false);
  /// RMS norm of each head of rows [N·T, heads · width].
  std::string head_norm(const std::string& name, const std::string& x, int64_t heads, int64_t width, double epsilon);
  /// "silu", "gelu", "gelu_new", "gelu_pytorch_tanh" or "relu". Throws Unsupported for others.
  std::string activation(const std::string& scope, const std::string& kind, const std::string& x);
  std::string add(const std::string& scope, const std::string& a, const std::string& b);
  std::string multiply(const std::string& scope, const std::string& a, const std::string& b);
  std::string scale(const std::string& scope, const std::string& x, float factor);
  /// cap · tanh(x / cap)
  std::string soft_cap(const std::string& scope, const std::string& x, float cap);
  std::vector<std::string> split(const std::string& scope, const std::string& x, const std::vector<int64_t>& widths);

  /// Positions [N, T]: past tokens counted, plus `offset`.
  std::string positions(int64_t offset = 0);
  /// Turns each head of rows by its token's position.
  std::string rotate(const std::string& scope, const std::string& x, int64_t heads, int64_t width, const Rope& rope);
  /// Causal attention of rows, as rows. `layer` numbers the cache.
  std::string attention(const std::string& scope, int64_t layer, const std::string& q, const std::string& k,
                        const std::string& v, const AttentionShape& shape);
  /// Attention in both directions among the tokens that `mask` [N, T] of int64 marks with 1.
  std::string full_attention(const std::string& scope, const std::string& mask, const std::string& q,
                             const std::string& k, const std::string& v, const AttentionShape& shape);

  /// A node of any other kind; returns its first output. `scope` is the module that it belongs to.
  std::string op(const std::string& scope, const std::string& kind, std::vector<std::string> inputs,
                 std::vector<Attribute> attributes = {}, size_t outputs = 1);
  std::string ints(const std::vector<int64_t>& values);
  std::string number(float value);
  /// Rows as [N, T, width].
  std::string unfold(const std::string& rows, int64_t width);
  std::string fold(const std::string& scope, const std::string& value, int64_t width);

  Model finish(const std::string& name);

 private:
  /// What `make` gives, made once for each `key`.
  const std::string& once(const std::string& key, const std::function<std::string()>& make);
  std::string constant(const std::string& name, Tensor tensor);
  Tensor checked(const std::string& name, const Shape& shape) const;
  /// What the layer `name` multiplies: x, or in a quantized checkpoint maybe x after its quantizer.
  std::string layer_input(const std::string& name, const std::string& x);
  /// [2]: N and T.
  const std::string& tokens();
  const std::string& sequence();
  /// [1]: the tokens before these.
  const std::string& past();
  const std::string& total();
  std::string angle(const Rope& rope, const std::string& function);
  /// Which keys a query may look at, what is_causal says aside; "" where that is all. `window` as in AttentionShape.
  std::string seen(int64_t window);
  std::vector<Attribute> attention_attributes(const AttentionShape& shape) const;

  const Weights& weights_;
  BuildOptions options_;
  Model model_;
  std::map<std::string, std::string> made_;
  std::set<std::string> names_;  ///< of nodes and initializers
  std::string shape_source_;     ///< the value whose first two dimensions are N and T
  std::string past_source_;      ///< the first past key
  std::vector<ValueInfo> new_;   ///< outputs, after all others
};

}  // namespace kaon::lm
