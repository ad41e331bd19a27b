#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "engine/plan/plan_op.h"
#include "graph/clip.h"

namespace kaon {

Ids PlanOp::reads() const {
  Ids values;
  const auto add = [&](int32_t id) {
    if (id >= 0 && std::ranges::find(values, id) == values.end()) values.push_back(id);
  };
  for (const int32_t id : inputs) add(id);
  for (const PostOp& one : post) add(one.operand);
  return values;
}

int32_t PlanGraph::add_value(ValueFacts facts) {
  added.push_back(std::make_shared<const ValueFacts>(std::move(facts)));
  values.push_back(added.back().get());
  is_output.push_back(false);
  return static_cast<int32_t>(values.size()) - 1;
}

void PlanGraph::change(int32_t id, ValueFacts facts) {
  added.push_back(std::make_shared<const ValueFacts>(std::move(facts)));
  values[static_cast<size_t>(id)] = added.back().get();
}

int32_t PlanGraph::add_constant(const at::Tensor& tensor) {
  ValueFacts facts;
  facts.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  facts.type = DType::Float32;
  facts.is_static = true;
  facts.constant = {tensor.contiguous(), DType::Float32};
  return add_value(std::move(facts));
}

std::optional<float> PlanGraph::scalar(int32_t id) const {
  if (id < 0) return std::nullopt;
  const ValueFacts& value = facts(id);
  if (!value.is_static || value.type != DType::Float32 || value.constant.tensor.numel() != 1) return std::nullopt;
  return value.constant.tensor.data_ptr<float>()[0];
}

std::optional<std::pair<float, float>> clip_bounds(const PlanGraph& graph, const PlanOp& op) {
  const auto bounds = kaon::clip_bounds(*op.node, [&](size_t i) { return graph.scalar(op.inputs[i]); });
  return bounds ? std::optional(std::pair(bounds->low, bounds->high)) : std::nullopt;
}

std::shared_ptr<const FlatQuantizer> flat_quantizer(const PlanGraph& graph, const PlanOp& op) {
  if (!op.is_fake_quantize() || graph.facts(op.inputs[0]).type != DType::Float32) return nullptr;
  const TensorSpec spec = fake_quantize_spec(*op.node);
  const auto input = [&](size_t i) { return i < op.inputs.size() ? op.inputs[i] : -1; };
  // Random rounding goes by an element's place in the tensor.
  if (has_own_scales(spec) || spec.rounding == Rounding::Stochastic) return nullptr;
  if (input(1) < 0) return is_cast(format(spec.format)) ? std::make_shared<FlatQuantizer>(spec, 1.0F, 0) : nullptr;
  const std::optional<float> scale = graph.scalar(input(1));
  if (!scale) return nullptr;
  int32_t zero_point = 0;
  if (input(2) >= 0) {
    const ValueFacts& facts = graph.facts(input(2));
    if (!facts.is_static || facts.type != DType::Int32 || facts.constant.tensor.numel() != 1) return nullptr;
    zero_point = facts.constant.tensor.data_ptr<int32_t>()[0];
  }
  return std::make_shared<FlatQuantizer>(spec, *scale, zero_point);
}

namespace {

using dnnl::algorithm;

class Fuser {
 public:
  explicit Fuser(PlanGraph& graph) : graph_(graph), gone_(graph.ops.size()) { count_readers(); }

  void run() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const PlanOp& op = graph_.ops[i];
      if (gone_[i] || !(op.is("Conv") || op.is("ConvTranspose") || op.is("Gemm") || op.is("MatMul"))) continue;
      if (graph_.facts(op.outputs[0]).type != DType::Float32) continue;
      while (absorb_next(i)) {
      }
    }
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!gone_[i] && graph_.ops[i].is("Add")) absorb_quantizer(i);
    }
    std::vector<size_t> order;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!gone_[i]) order.push_back(i);
    }
    std::ranges::stable_sort(order, {}, [&](size_t i) { return graph_.ops[i].position; });
    std::vector<PlanOp> kept;
    kept.reserve(order.size());
    for (const size_t i : order) kept.push_back(std::move(graph_.ops[i]));
    graph_.ops = std::move(kept);
  }

 private:
  using Readers = c10::SmallVector<size_t, 2>;

  void count_readers() {
    readers_.resize(graph_.values.size());
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      for (const int32_t id : graph_.ops[i].inputs) {
        if (id < 0) continue;
        Readers& readers = readers_[static_cast<size_t>(id)];
        if (readers.empty() || readers.back() != i) readers.push_back(i);
      }
    }
  }

  const Readers& readers(int32_t id) const { return readers_[static_cast<size_t>(id)]; }

  /// The one op that reads `id`, or -1 when there are others or the caller gets the value.
  int64_t only_reader(int32_t id) const {
    if (graph_.is_output[static_cast<size_t>(id)] || readers(id).size() != 1) return -1;
    return static_cast<int64_t>(readers(id)[0]);
  }

  /// oneDNN's depthwise kernels mix up the numbers of two post-ops of one kind.
  bool has_post(size_t index, algorithm kind) const {
    const std::vector<PostOp>& post = graph_.ops[index].post;
    return std::any_of(post.begin(), post.end(),
                       [&](const PostOp& one) { return one.algorithm == kind && one.operand < 0; });
  }

  int32_t other_input(const PlanOp& op, int32_t id) const { return op.inputs[0] == id ? op.inputs[1] : op.inputs[0]; }

  bool is_binary_with(const PlanOp& op, std::string_view name, int32_t id, std::optional<float> value) const {
    return op.is(name) && op.inputs.size() == 2 && value && graph_.scalar(other_input(op, id)) == value;
  }

  void take(size_t into, std::initializer_list<size_t> taken, int32_t output, const std::vector<PostOp>& post) {
    PlanOp& op = graph_.ops[into];
    op.grid.reset();
    for (const size_t i : taken) {
      gone_[i] = true;
      op.position = std::max(op.position, graph_.ops[i].position);
    }
    for (const PostOp& one : post) {
      // A dynamic operand is read at this op now.
      if (one.operand >= 0 && static_cast<size_t>(one.operand) < readers_.size()) {
        for (size_t& reader : readers_[static_cast<size_t>(one.operand)]) {
          if (std::find(taken.begin(), taken.end(), reader) != taken.end()) reader = into;
        }
      }
      op.post.push_back(one);
    }
    op.outputs = {output};
  }

  bool absorb_next(size_t index) {
    const int32_t value = graph_.ops[index].outputs[0];
    if (absorb_pattern(index, value)) return true;
    const int64_t reader = only_reader(value);
    if (reader < 0) return false;
    const PlanOp& next = graph_.ops[static_cast<size_t>(reader)];
    // Quantized results are better added in one pass with the FakeQuantize behind the addition.
    if (next.is("Add") && has_post(index, algorithm::eltwise_round) && !graph_.scalar(other_input(next, value)))
      return false;
    if (next.hook >= 0 || next.outputs.size() != 1 || next.inputs[0] < 0) return false;
    if (graph_.facts(next.outputs[0]).type != DType::Float32) return false;
    if (graph_.facts(next.outputs[0]).shape != graph_.facts(value).shape) return false;
    const auto add = [&](const std::vector<PostOp>& post) {
      for (const PostOp& one : post) {
        if (has_post(index, one.algorithm)) return false;
      }
      take(index, {static_cast<size_t>(reader)}, next.outputs[0], post);
      return true;
    };
    if (next.is("Relu")) return add({{algorithm::eltwise_relu, 0, 0}});
    if (next.is("LeakyRelu")) return add({{algorithm::eltwise_relu, next.node->get_float("alpha", 0.01F), 0}});
    if (next.is("Sigmoid")) return add({{algorithm::eltwise_logistic, 0, 0}});
    if (next.is("Tanh")) return add({{algorithm::eltwise_tanh, 0, 0}});
    if (next.is("HardSwish")) return add({{algorithm::eltwise_hardswish, 0, 0}});
    if (next.is("HardSigmoid")) {
      return add({{algorithm::eltwise_linear, next.node->get_float("alpha", 0.2F), next.node->get_float("beta", 0.5F)},
                  {algorithm::eltwise_clip, 0, 1}});
    }
    if (next.is("Clip") && next.inputs[0] == value) {
      const auto bounds = clip_bounds(graph_, next);
      return bounds && add({{algorithm::eltwise_clip, bounds->first, bounds->second}});
    }
    if (next.is_fake_quantize()) return absorb_grid(index, static_cast<size_t>(reader));
    if (next.is("BatchNormalization")) return absorb_batch_norm(index, static_cast<size_t>(reader), value);
    if (next.is("Add") || next.is("Mul") || next.is("Sub") || next.is("Div")) {
      return absorb_binary(index, static_cast<size_t>(reader), value);
    }
    return false;
  }

  /// x·clip(x + 3, 0, 6) / 6 and x·sigmoid(x), spelled out.
  bool absorb_pattern(size_t index, int32_t x) {
    if (graph_.is_output[static_cast<size_t>(x)] || readers(x).size() != 2) return false;
    const size_t first = readers(x)[0];
    const size_t mul = readers(x)[1];
    const PlanOp& gate = graph_.ops[first];
    const PlanOp& product = graph_.ops[mul];
    if (!product.is("Mul") || product.inputs[0] == product.inputs[1]) return false;
    if (has_post(index, algorithm::eltwise_swish) || has_post(index, algorithm::eltwise_hardswish)) return false;
    if (gate.is("Sigmoid") && other_input(product, x) == gate.outputs[0] && only_reader(gate.outputs[0]) >= 0) {
      take(index, {first, mul}, product.outputs[0], {{algorithm::eltwise_swish, 1, 0}});
      return true;
    }
    if (gate.is("HardSigmoid") && other_input(product, x) == gate.outputs[0] && only_reader(gate.outputs[0]) >= 0 &&
        std::abs(gate.node->get_float("alpha", 0.2F) - 1.0F / 6) < 1e-6F &&
        gate.node->get_float("beta", 0.5F) == 0.5F) {
      take(index, {first, mul}, product.outputs[0], {{algorithm::eltwise_hardswish, 0, 0}});
      return true;
    }
    if (!is_binary_with(gate, "Add", x, 3.0F)) return false;
    const int64_t clip = only_reader(gate.outputs[0]);
    if (clip < 0 || !graph_.ops[static_cast<size_t>(clip)].is("Clip")) return false;
    const PlanOp& clipped = graph_.ops[static_cast<size_t>(clip)];
    if (clip_bounds(graph_, clipped) != std::pair(0.0F, 6.0F)) return false;
    if (only_reader(clipped.outputs[0]) != static_cast<int64_t>(mul)) return false;
    const int64_t last = only_reader(product.outputs[0]);
    if (last < 0) return false;
    const PlanOp& scaled = graph_.ops[static_cast<size_t>(last)];
    const bool sixth =
        (is_binary_with(scaled, "Div", product.outputs[0], 6.0F) && scaled.inputs[0] == product.outputs[0]) ||
        is_binary_with(scaled, "Mul", product.outputs[0], 1.0F / 6);
    if (!sixth) return false;
    take(index, {first, static_cast<size_t>(clip), mul, static_cast<size_t>(last)}, scaled.outputs[0],
         {{algorithm::eltwise_hardswish, 0, 0}});
    return true;
  }

  bool absorb_batch_norm(size_t index, size_t reader, int32_t value) {
    const PlanOp& norm = graph_.ops[reader];
    if (norm.inputs.size() != 5 || norm.node->get_int("training_mode", 0) != 0) return false;
    for (size_t i = 1; i < 5; ++i) {
      const ValueFacts& facts = graph_.facts(norm.inputs[i]);
      if (!facts.is_static || facts.type != DType::Float32 || facts.shape.size() != 1) return false;
    }
    const auto parameter = [&](size_t i) { return graph_.facts(norm.inputs[i]).constant.tensor.to(at::kDouble); };
    const double epsilon = norm.node->get_float("epsilon", 1e-5F);
    at::Tensor scale = parameter(1) / (parameter(4) + epsilon).sqrt();
    at::Tensor shift = (parameter(2) - parameter(3) * scale).to(at::kFloat);
    const int32_t output = norm.outputs[0];
    PlanOp& op = graph_.ops[index];
    if (op.is("Conv") && op.post.empty() && op.fold_scale < 0) {
      op.fold_scale = graph_.add_constant(scale.to(at::kFloat));
      op.fold_shift = graph_.add_constant(shift);
      take(index, {reader}, output, {});
      return true;
    }
    if (!op.post.empty() && op.post.back().algorithm == algorithm::eltwise_linear) {
      shift = (shift + scale * op.post.back().beta).to(at::kFloat);
      scale = scale * op.post.back().alpha;
      op.post.pop_back();
    }
    std::vector<int64_t> along_channels(graph_.facts(value).shape.size(), 1);
    along_channels[1] = -1;
    const int32_t scale_value = graph_.add_constant(scale.to(at::kFloat).reshape(along_channels));
    const int32_t shift_value = graph_.add_constant(shift.reshape(along_channels));
    take(index, {reader}, output,
         {{algorithm::binary_mul, 0, 0, scale_value}, {algorithm::binary_add, 0, 0, shift_value}});
    return true;
  }

  bool absorb_binary(size_t index, size_t reader, int32_t value) {
    const PlanOp& next = graph_.ops[reader];
    if (next.inputs.size() != 2 || next.inputs[0] == next.inputs[1]) return false;
    if ((next.is("Sub") || next.is("Div")) && next.inputs[0] != value) return false;
    const int32_t operand = other_input(next, value);
    const int32_t output = next.outputs[0];
    if (const std::optional<float> number = graph_.scalar(operand)) {
      if (next.is("Add")) absorb_linear(index, 1, *number);
      if (next.is("Sub")) absorb_linear(index, 1, -*number);
      if (next.is("Mul")) absorb_linear(index, *number, 0);
      if (next.is("Div")) absorb_linear(index, 1 / *number, 0);
      take(index, {reader}, output, {});
      return true;
    }
    if (!(next.is("Add") || next.is("Mul"))) return false;
    const ValueFacts& facts = graph_.facts(operand);
    if (facts.type != DType::Float32) return false;
    const Shape& shape = graph_.facts(value).shape;
    const bool full = facts.shape == shape;
    if (!full && !(facts.is_static && along_one_axis(facts.shape, shape, graph_.ops[index]))) return false;
    const auto dynamic_operands =
        std::count_if(graph_.ops[index].post.begin(), graph_.ops[index].post.end(),
                      [&](const PostOp& p) { return p.operand >= 0 && !graph_.facts(p.operand).is_static; });
    if (full && !facts.is_static && dynamic_operands > 0) return false;
    take(index, {reader}, output, {{next.is("Add") ? algorithm::binary_add : algorithm::binary_mul, 0, 0, operand}});
    return true;
  }

  /// Convolution, clips, FakeQuantize: results come in units of the step, are rounded, clipped once and scaled before
  /// they are stored. Once more behind a batch norm or an activation that comes next.
  bool absorb_grid(size_t index, size_t reader) {
    constexpr float kLargest = 1e15F;  // a step that products cannot turn into infinities or zeros
    constexpr float kSteps = 255;      // a finer grid would show that x / step is not x · (1 / step)
    PlanOp& op = graph_.ops[index];
    const std::shared_ptr<const FlatQuantizer> quantizer = flat_quantizer(graph_, graph_.ops[reader]);
    if (!op.is("Conv") || quantizer == nullptr || !quantizer->grid()) return false;
    const FlatQuantizer::Grid grid = *quantizer->grid();
    if (grid.high - grid.low > kSteps || grid.step > kLargest || 1 / grid.step > kLargest) return false;
    float low = grid.low;
    float high = grid.high;
    size_t kept = op.post.size();
    for (; kept > 0; --kept) {
      const PostOp& post = op.post[kept - 1];
      const bool relu = post.algorithm == algorithm::eltwise_relu && post.alpha == 0;
      if (!relu && post.algorithm != algorithm::eltwise_clip) break;
      const float least = relu ? 0 : std::nearbyint(post.alpha / grid.step);
      const float most = relu ? grid.high : std::nearbyint(post.beta / grid.step);
      low = std::clamp(least, low, high);
      high = std::clamp(most, low, high);
    }
    algorithm clip = algorithm::eltwise_clip;
    for (size_t i = 0; i < kept; ++i) {
      if (op.post[i].algorithm == algorithm::eltwise_clip_v2) return false;
      if (op.post[i].algorithm == algorithm::eltwise_clip) clip = algorithm::eltwise_clip_v2;
    }
    op.post.resize(kept);
    if (kept == 0) {
      op.post.push_back({algorithm::eltwise_linear, 1 / grid.step, 0});  // weights would be rounded once more
    } else {
      absorb_linear(index, 1 / grid.step, 0);
    }
    take(index, {reader}, graph_.ops[reader].outputs[0], {{algorithm::eltwise_round, 0, 0}, {clip, low, high}});
    absorb_linear(index, grid.step, 0);
    op.grid = grid;
    return true;
  }

  /// Add, clips, FakeQuantize: one pass over memory.
  void absorb_quantizer(size_t index) {
    const PlanOp& add = graph_.ops[index];
    const Shape& shape = graph_.facts(add.outputs[0]).shape;
    if (add.inputs.size() != 2 || !add.post.empty() || element_count(shape) == 0) return;
    for (const int32_t id : {add.inputs[0], add.inputs[1], add.outputs[0]}) {
      if (graph_.facts(id).type != DType::Float32 || graph_.facts(id).shape != shape) return;
    }
    std::vector<PostOp> clips;
    std::vector<size_t> taken;
    for (int32_t value = add.outputs[0];;) {
      const int64_t reader = only_reader(value);
      if (reader < 0) return;
      const PlanOp& next = graph_.ops[static_cast<size_t>(reader)];
      if (next.inputs[0] != value || next.outputs.size() != 1) return;
      taken.push_back(static_cast<size_t>(reader));
      if (const auto quantizer = flat_quantizer(graph_, next)) {
        graph_.ops[index].quantizer = quantizer;
        for (const size_t i : taken) take(index, {i}, next.outputs[0], {});
        graph_.ops[index].post = clips;
        return;
      }
      std::optional<std::pair<float, float>> bounds;
      if (next.is("Relu")) bounds = {0.0F, std::numeric_limits<float>::infinity()};
      if (next.is("Clip")) bounds = clip_bounds(graph_, next);
      if (!bounds) return;
      clips.push_back({algorithm::eltwise_clip, bounds->first, bounds->second});
      value = next.outputs[0];
    }
  }

  /// x·alpha + beta goes into the weights of a convolution, or into the post-ops.
  void absorb_linear(size_t index, float alpha, float beta) {
    PlanOp& op = graph_.ops[index];
    std::vector<PostOp>& post = op.post;
    const auto tensor = [&](int32_t id) { return graph_.facts(id).constant.tensor; };
    if (op.is("Conv") && post.empty()) {
      const int64_t channels = graph_.facts(op.outputs[0]).shape[1];
      const at::Tensor scale = op.fold_scale < 0 ? at::ones({channels}) : tensor(op.fold_scale);
      const at::Tensor shift = op.fold_scale < 0 ? at::zeros({channels}) : tensor(op.fold_shift);
      op.fold_scale = graph_.add_constant(scale * alpha);
      op.fold_shift = graph_.add_constant(shift * alpha + beta);
    } else if (!post.empty() && post.back().algorithm == algorithm::eltwise_linear) {
      post.back().alpha *= alpha;
      post.back().beta = post.back().beta * alpha + beta;
    } else if (ends_with_affine(post)) {
      PostOp& mul = post[post.size() - 2];
      PostOp& add = post.back();
      mul.operand = graph_.add_constant(tensor(mul.operand) * alpha);
      add.operand = graph_.add_constant(tensor(add.operand) * alpha + beta);
    } else if (has_post(index, algorithm::eltwise_linear)) {
      if (alpha != 1) post.push_back({algorithm::binary_mul, 0, 0, graph_.add_constant(at::full({1}, alpha))});
      if (beta != 0) post.push_back({algorithm::binary_add, 0, 0, graph_.add_constant(at::full({1}, beta))});
    } else {
      post.push_back({algorithm::eltwise_linear, alpha, beta});
    }
  }

  /// A product with a constant, then a sum with one.
  bool ends_with_affine(const std::vector<PostOp>& post) const {
    if (post.size() < 2) return false;
    const PostOp& mul = post[post.size() - 2];
    const PostOp& add = post.back();
    return mul.algorithm == algorithm::binary_mul && graph_.facts(mul.operand).is_static &&
           add.algorithm == algorithm::binary_add && graph_.facts(add.operand).is_static;
  }

  /// Whether `operand` varies along the channels of a convolution, or the columns of a product, alone.
  static bool along_one_axis(const Shape& operand, const Shape& shape, const PlanOp& op) {
    if (operand.size() > shape.size()) return false;
    const size_t axis = op.is("Conv") || op.is("ConvTranspose") ? 1 : shape.size() - 1;
    const size_t missing = shape.size() - operand.size();
    for (size_t i = 0; i < operand.size(); ++i) {
      const int64_t wanted = i + missing == axis ? shape[axis] : 1;
      if (operand[i] != wanted) return false;
    }
    return missing <= axis;
  }

  PlanGraph& graph_;
  std::vector<bool> gone_;
  std::vector<Readers> readers_;
};

}  // namespace

void fuse(PlanGraph& graph) { Fuser(graph).run(); }

}  // namespace kaon
