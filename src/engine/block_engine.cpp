#include "engine/block_engine.h"

#include <algorithm>
#include <array>
#include <optional>

#include "engine/interpreter.h"
#include "engine/plan/plan.h"
#include "engine/plan/trace_memo.h"
#include "engine/threads.h"
#include "graph/stored.h"

namespace kaon {

namespace {

/// Whether a step takes what it reads there for a matrix, bias or scale that it only computes with: plans then hold no
/// more of it than its elements.
bool reads_weight(const Node& node, size_t input) {
  if (!node.domain.empty() || input == 0) return false;
  return node.op == "Gemm" || node.op == "MatMul" || node.op == "LayerNormalization" || node.op == "RMSNormalization";
}

/// By value: the weights that may be exchanged.
std::vector<bool> find_weights(const Program& program) {
  std::vector<bool> weights(program.value_names().size());
  for (const auto& [id, value] : program.constants()) {
    weights[static_cast<size_t>(id)] = value.type == DType::Float32 || is_half(value.type);
  }
  for (const int32_t id : program.inputs()) weights[static_cast<size_t>(id)] = false;
  for (const Step& step : program.steps()) {
    if (step.widens_weights)
      weights[static_cast<size_t>(step.outputs[0])] = weights[static_cast<size_t>(step.inputs[0])];
  }
  for (const int32_t id : program.outputs()) weights[static_cast<size_t>(id)] = false;
  // A Cast's input is a weight where its output is one, so readers come first.
  for (size_t i = program.steps().size(); i-- > 0;) {
    const Step& step = program.steps()[i];
    for (size_t k = 0; k < step.inputs.size(); ++k) {
      if (step.inputs[k] < 0) continue;
      const bool only_widened = step.widens_weights && weights[static_cast<size_t>(step.outputs[0])];
      if (!only_widened && !reads_weight(program.graph().nodes[i], k))
        weights[static_cast<size_t>(step.inputs[k])] = false;
    }
  }
  return weights;
}

bool same_info(const ValueInfo& a, const ValueInfo& b) {
  if (a.name != b.name || a.type != b.type || a.shape.has_value() != b.shape.has_value()) return false;
  return !a.shape || std::ranges::equal(*a.shape, *b.shape, {}, &Dim::value, &Dim::value);
}

/// Which names of two graphs stand for the same value; false where that is contradicted.
class Names {
 public:
  bool match(const std::string& a, const std::string& b) {
    return a.empty() == b.empty() && there_.try_emplace(a, b).first->second == b &&
           back_.try_emplace(b, a).first->second == a;
  }
  bool match(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    return std::ranges::equal(a, b, [this](const auto& x, const auto& y) { return match(x, y); });
  }

 private:
  std::map<std::string, std::string> there_, back_;
};

/// The weights of `model` for a program of the same graph; nothing where more than they is different.
std::optional<std::vector<std::pair<int32_t, Tensor>>> weights_for(const Program& program, const Model& model) {
  const Graph& own = program.graph();
  const Graph& other = model.graph;
  const auto sizes = [](const Graph& graph) {
    return std::array{graph.nodes.size(), graph.initializers.size(), graph.inputs.size(), graph.outputs.size()};
  };
  if (program.model().opsets != model.opsets || sizes(own) != sizes(other)) return std::nullopt;
  if (!std::ranges::equal(own.inputs, other.inputs, same_info)) return std::nullopt;
  if (!std::ranges::equal(own.outputs, other.outputs, same_info)) return std::nullopt;
  Names names;
  for (const std::vector<ValueInfo>* fixed : {&own.inputs, &own.outputs}) {
    for (const ValueInfo& info : *fixed) {
      if (!names.match(info.name, info.name)) return std::nullopt;
    }
  }
  for (size_t i = 0; i < own.nodes.size(); ++i) {
    const std::string kind = node_kind(own.nodes[i]);
    if (kind.empty() || kind != node_kind(other.nodes[i])) return std::nullopt;
    if (!names.match(own.nodes[i].inputs, other.nodes[i].inputs)) return std::nullopt;
    if (!names.match(own.nodes[i].outputs, other.nodes[i].outputs)) return std::nullopt;
  }
  const std::vector<bool> may_change = find_weights(program);
  std::vector<std::pair<int32_t, Tensor>> weights;
  for (size_t i = 0; i < own.initializers.size(); ++i) {
    const Initializer& before = own.initializers[i];
    const Initializer& now = other.initializers[i];
    if (!names.match(before.name, now.name)) return std::nullopt;
    if (before.tensor.type() != now.tensor.type() || before.tensor.shape() != now.tensor.shape()) return std::nullopt;
    const int32_t id = program.find_value(before.name);
    if (may_change[static_cast<size_t>(id)]) {
      weights.emplace_back(id, now.tensor);
    } else if (!std::ranges::equal(before.tensor.bytes(), now.tensor.bytes())) {
      return std::nullopt;
    }
  }
  return weights;
}

}  // namespace

BlockEngine::BlockEngine() = default;
BlockEngine::~BlockEngine() = default;
BlockEngine::BlockEngine(BlockEngine&&) noexcept = default;
BlockEngine& BlockEngine::operator=(BlockEngine&&) noexcept = default;

void BlockEngine::use(Model model) {
  use_configured_threads();
  const c10::InferenceMode inference;
  const auto weights = program_ == nullptr ? std::nullopt : weights_for(*program_, model);
  if (weights && plans_->exchange(*weights)) {
    for (const auto& [id, tensor] : *weights) program_->exchange(id, tensor);
    return;
  }
  plans_.reset();
  program_.reset();
  program_ = Program::compile(std::move(model));
  plans_ = std::make_unique<Plans>(program_);
  ++programs_made_;
}

std::vector<Tensor> BlockEngine::run(const TensorMap& inputs) {
  if (program_ == nullptr) fail(ErrorCode::Internal, "BlockEngine", "no model is in use");
  use_configured_threads();
  const c10::InferenceMode inference;
  try {
    return plans_->run(load_inputs(*program_, inputs), {}, VariantIds(*program_, {}));
  } catch (...) {
    rethrow_as_error("");
  }
}

int64_t BlockEngine::plans_made() const { return plans_ == nullptr ? 0 : plans_->made(); }

}  // namespace kaon
