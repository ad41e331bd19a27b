#include "engine/engine.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/frame_state.h"
#include "engine/interpreter.h"
#include "engine/plan/plan.h"
#include "engine/plan/variant.h"
#include "engine/program.h"
#include "engine/threads.h"
#include "graph/describe.h"

namespace kaon {

namespace {

bool fits(const ValueInfo& info, const Tensor& tensor) {
  if (info.type != DType::Undefined && info.type != tensor.type()) return false;
  if (!info.shape) return true;
  if (std::ssize(*info.shape) != tensor.rank()) return false;
  for (size_t i = 0; i < info.shape->size(); ++i) {
    const std::optional<int64_t> wanted = (*info.shape)[i].value;
    if (wanted && *wanted >= 0 && *wanted != tensor.shape()[i]) return false;
  }
  return true;
}

}  // namespace

std::vector<Value> load_inputs(const Program& program, const TensorMap& inputs) {
  const Graph& graph = program.graph();
  std::vector<Value> table = program.new_table();
  size_t used = 0;
  for (const ValueInfo& info : graph.inputs) {
    const auto it = inputs.find(info.name);
    const auto id = static_cast<size_t>(program.find_value(info.name));
    if (it == inputs.end()) {
      if (table[id].defined()) continue;  // an input with a default
      fail(ErrorCode::InvalidInput, info.name, "the model needs this input: {}", describe(info));
    }
    if (!fits(info, it->second)) {
      fail(ErrorCode::InvalidInput, info.name, "the input is {} {}, the model takes {}", name_of(it->second.type()),
           to_string(it->second.shape()), describe(info));
    }
    table[id] = to_value(it->second);
    ++used;
  }
  if (used != inputs.size()) {
    std::vector<std::string> known;
    for (const ValueInfo& info : graph.inputs) known.push_back(info.name);
    for (const auto& [name, tensor] : inputs) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        fail(ErrorCode::InvalidInput, name, "the model has no such input; it takes {}", fmt::join(known, ", "));
      }
    }
  }
  return table;
}

Engine::Engine(Model model, Runs runs)
    : program_(Program::compile(std::move(model), runs)), plans_(std::make_unique<Plans>(program_)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const Model& Engine::model() const { return program_->model(); }

std::vector<Tensor> Engine::run(const TensorMap& inputs, const Hooks& hooks, const Variant& variant) {
  use_configured_threads();
  const c10::InferenceMode inference;
  try {
    return plans_->run(load_inputs(*program_, inputs), hooks, VariantIds(*program_, variant));
  } catch (...) {
    rethrow_as_error("");
  }
}

Frame Engine::start(const TensorMap& inputs, const std::vector<std::string>& keep) const {
  use_configured_threads();
  auto state = std::make_unique<Frame::State>();
  state->program = program_;
  state->table = load_inputs(*program_, inputs);
  state->keep.resize(state->table.size());
  for (const std::string& name : keep) {
    const int32_t id = program_->find_value(name);
    if (id < 0) fail(ErrorCode::InvalidInput, name, "the model has no such value to keep");
    state->keep[static_cast<size_t>(id)] = true;
  }
  return Frame(std::move(state));
}

std::vector<std::string> unsupported_nodes(const Model& model) {
  std::vector<std::string> unsupported;
  const auto shared = std::make_shared<Model>(model);
  ProgramBuilder(shared, shared->graph, unsupported).build();
  return unsupported;
}

std::vector<Tensor> evaluate_node(const Node& node, const Model& model, std::span<const Tensor> inputs) {
  Model single;
  single.opsets = model.opsets;
  single.graph.nodes.push_back(node);
  for (const std::string& output : node.outputs) {
    if (!output.empty()) single.graph.outputs.push_back({.name = output});
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].empty() && single.graph.find_initializer(node.inputs[i]) == nullptr) {
      single.graph.initializers.push_back({node.inputs[i], inputs[i], {}, {}});
    }
  }
  const c10::InferenceMode inference;
  const auto program = Program::compile(std::move(single));
  return interpret(*program, program->new_table(), {});
}

}  // namespace kaon
