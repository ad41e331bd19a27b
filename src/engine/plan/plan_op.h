#pragma once
#include <c10/util/SmallVector.h>

#include <deque>
#include <dnnl.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/plan/flat_quantizer.h"
#include "engine/plan/trace.h"
#include "graph/fake_quantize.h"

namespace kaon {

struct CodesOp;

/// Values of an op: few, and a plan for a new shape is made of hundreds of ops.
using Ids = c10::SmallVector<int32_t, 4>;

/// Work that a convolution or matrix product does on its result before storing it.
struct PostOp {
  dnnl::algorithm algorithm = dnnl::algorithm::undef;  ///< an eltwise or a binary algorithm
  float alpha = 0;
  float beta = 0;
  int32_t operand = -1;  ///< value id, for binary algorithms
};

/// One node, or several fused into one, waiting to be lowered.
struct PlanOp {
  size_t step = 0;      ///< the program's step it takes kernel and attributes from
  size_t position = 0;  ///< when it runs: the index of the last node in it
  const Node* node = nullptr;
  int32_t hook = -1;        ///< ≥ 0: shows inputs[0] to a hook and gives it on as outputs[0]; a watcher has none
  int32_t hook_value = -1;  ///< the value that the hook is told it sees
  Ids inputs;
  Ids outputs;
  std::vector<PostOp> post;
  /// A batch norm folded into the weights: w·scale, b·scale + shift; value ids, -1 for none.
  int32_t fold_scale = -1;
  int32_t fold_shift = -1;
  /// A FakeQuantize that ends an addition (and what `post` says).
  std::shared_ptr<const FlatQuantizer> quantizer;
  /// Of a convolution: the FakeQuantize that its post-ops end with.
  std::optional<FlatQuantizer::Grid> grid;
  /// Work on codes, which is all that is to be done.
  std::shared_ptr<const CodesOp> codes;

  /// The values it reads, operands of post-ops included, each once.
  Ids reads() const;
  bool is(std::string_view op) const { return node != nullptr && node->domain.empty() && node->op == op; }
  bool is_fake_quantize() const { return node != nullptr && kaon::is_fake_quantize(*node); }
  bool is_watcher() const { return hook >= 0 && outputs.empty(); }
};

/// The values and work of a plan while it is made. Fusing adds values (folded constants) behind the program's own.
struct PlanGraph {
  std::vector<const ValueFacts*> values;  ///< null: an input that is not given
  std::vector<PlanOp> ops;
  std::vector<int32_t> outputs;                   ///< by the program's outputs, hooks applied
  std::vector<bool> is_output;                    ///< by value
  std::vector<std::shared_ptr<const Node>> made;  ///< nodes of ops that are not the program's
  // Owners of facts: the trace's, those that were added since, and TraceShared, which outlives all.
  std::shared_ptr<const std::deque<ValueFacts>> traced;
  std::vector<std::shared_ptr<const ValueFacts>> added;
  int32_t first_codes = -1;  ///< the codes of value i would be value first_codes + i; -1: none has any

  const ValueFacts& facts(int32_t id) const {
    static const ValueFacts kNothing;
    const ValueFacts* known = values[static_cast<size_t>(id)];
    return known == nullptr ? kNothing : *known;
  }
  int32_t add_value(ValueFacts facts);
  /// Says other things of a value.
  void change(int32_t id, ValueFacts facts);
  int32_t add_constant(const at::Tensor& tensor);
  /// A static value of one float element.
  std::optional<float> scalar(int32_t id) const;
};

/// The bounds of a Clip where they are known.
std::optional<std::pair<float, float>> clip_bounds(const PlanGraph& graph, const PlanOp& op);

/// A FakeQuantize with one known scale; nullptr where `op` is something else.
std::shared_ptr<const FlatQuantizer> flat_quantizer(const PlanGraph& graph, const PlanOp& op);

/// Turns QuantizeLinear and the DequantizeLinear behind it into one FakeQuantize, where the parameters are known.
void join_quantize_pairs(PlanGraph& graph);

/// Moves what follows a convolution or matrix product into it: bias-like and residual additions, scales, batch norms,
/// clips and other activations, as long as nobody else reads the value between. Convolutions and additions take the
/// clips and the FakeQuantize behind them.
void fuse(PlanGraph& graph);

}  // namespace kaon
