// Files keep a quantizer as QuantizeLinear and DequantizeLinear; together they are what FakeQuantize is.
#include <algorithm>

#include "engine/op.h"
#include "engine/plan/plan_op.h"

namespace kaon {

namespace {

/// The format that codes of this type are in, where they are integers of up to 16 bits.
std::optional<std::string> code_format(DType type) {
  switch (type) {
    case DType::Int2:
    case DType::Int4:
    case DType::Int8:
    case DType::Int16:
    case DType::UInt2:
    case DType::UInt4:
    case DType::UInt8:
    case DType::UInt16: return std::string(name_of(type));
    default: return std::nullopt;
  }
}

class PairJoiner {
 public:
  explicit PairJoiner(PlanGraph& graph) : graph_(graph), gone_(graph.ops.size()), readers_(graph.values.size()) {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      for (const int32_t id : graph.ops[i].inputs) {
        if (id >= 0) readers_[static_cast<size_t>(id)].push_back(i);
      }
    }
  }

  void run() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) join(i);
    std::vector<PlanOp> kept;
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      if (!gone_[i]) kept.push_back(std::move(graph_.ops[i]));
    }
    graph_.ops = std::move(kept);
  }

 private:
  static bool is(const PlanOp& op, std::string_view kind) {
    return op.node != nullptr && op.node->op == kind && (op.node->domain.empty() || op.node->domain == kMicrosoft);
  }
  static int32_t input(const PlanOp& op, size_t i) { return i < op.inputs.size() ? op.inputs[i] : -1; }

  /// Constant inputs of the same contents; -1 stands for zeros.
  bool same(int32_t a, int32_t b) const {
    if (a == b) return true;
    const auto tensor = [&](int32_t id) { return graph_.facts(id).constant.tensor; };
    if (a < 0 || b < 0) {
      const int32_t given = std::max(a, b);
      return graph_.facts(given).is_static && tensor(given).eq(0).all().item<bool>();
    }
    return graph_.facts(a).is_static && graph_.facts(b).is_static && graph_.facts(a).type == graph_.facts(b).type &&
           at::equal(tensor(a), tensor(b));
  }

  /// Whether it reads codes with the parameters of the QuantizeLinear `to`.
  bool inverts(const PlanOp& from, const PlanOp& to) const {
    return is(from, "DequantizeLinear") && from.outputs.size() == 1 &&
           graph_.facts(from.outputs[0]).type == DType::Float32 && from.node->get_int("block_size", 0) == 0 &&
           from.node->get_int("axis", 1) == to.node->get_int("axis", 1) && same(input(from, 1), input(to, 1)) &&
           same(input(from, 2), input(to, 2));
  }

  /// Its spec, where the plan has a quick way for it.
  std::optional<TensorSpec> spec_of(const PlanOp& op) const {
    const ValueFacts& x = graph_.facts(op.inputs[0]);
    const int32_t scale = input(op, 1);
    const int32_t zero = input(op, 2);
    if (x.type != DType::Float32 || x.is_static || element_count(x.shape) == 0) return std::nullopt;
    if (op.node->get_int("block_size", 0) != 0 || op.node->find("precision") != nullptr) return std::nullopt;
    if (!graph_.facts(scale).is_static || graph_.facts(scale).type != DType::Float32) return std::nullopt;
    if (zero >= 0 && !graph_.facts(zero).is_static) return std::nullopt;
    const at::Tensor scales = graph_.facts(scale).constant.tensor;
    if (!scales.gt(0).logical_and(scales.isfinite()).all().item<bool>()) return std::nullopt;
    const std::optional<std::string> format = code_format(graph_.facts(op.outputs[0]).type);
    if (!format) return std::nullopt;
    TensorSpec spec;
    spec.format = *format;
    spec.symmetric = zero < 0;
    if (scales.numel() > 1) {
      spec.granularity = Granularity::PerChannel;
      spec.axis = op.node->get_int("axis", 1);
    }
    return spec;
  }

  void join(size_t index) {
    PlanOp& op = graph_.ops[index];
    if (!is(op, "QuantizeLinear")) return;
    const int32_t codes = op.outputs[0];
    const std::vector<size_t> readers = readers_[static_cast<size_t>(codes)];
    if (readers.empty() || graph_.is_output[static_cast<size_t>(codes)]) return;
    if (!std::ranges::all_of(readers, [&](size_t i) { return inverts(graph_.ops[i], op); })) return;
    const std::optional<TensorSpec> spec = spec_of(op);
    if (!spec) return;
    const int32_t output = graph_.ops[readers[0]].outputs[0];
    for (const size_t i : readers) {
      gone_[i] = true;
      replace(graph_.ops[i].outputs[0], output);
    }
    graph_.made.push_back(std::make_shared<const Node>(
        make_fake_quantize(*spec, op.node->inputs[0], graph_.ops[readers[0]].node->outputs[0], op.node->inputs[1])));
    op.node = graph_.made.back().get();
    const int32_t zero = input(op, 2);
    op.inputs.resize(2);
    if (zero >= 0) op.inputs.push_back(as_int32(zero));
    op.outputs = {output};
  }

  void replace(int32_t value, int32_t by) {
    if (value == by) return;
    for (const size_t i : readers_[static_cast<size_t>(value)]) {
      std::ranges::replace(graph_.ops[i].inputs, value, by);
      readers_[static_cast<size_t>(by)].push_back(i);
    }
    if (!graph_.is_output[static_cast<size_t>(value)]) return;
    std::ranges::replace(graph_.outputs, value, by);
    graph_.is_output[static_cast<size_t>(by)] = true;
  }

  int32_t as_int32(int32_t zero) {
    ValueFacts facts = graph_.facts(zero);
    const std::vector<int64_t> numbers = to_tensor(facts.constant).to_int64();
    facts.type = DType::Int32;
    facts.constant = {at::tensor(numbers, at::kInt).reshape(facts.shape), DType::Int32};
    return graph_.add_value(std::move(facts));
  }

  PlanGraph& graph_;
  std::vector<bool> gone_;
  std::vector<std::vector<size_t>> readers_;
};

}  // namespace

void join_quantize_pairs(PlanGraph& graph) {
  const auto quantizes = [](const PlanOp& op) { return op.node != nullptr && op.node->op == "QuantizeLinear"; };
  if (std::ranges::any_of(graph.ops, quantizes)) PairJoiner(graph).run();
}

}  // namespace kaon
