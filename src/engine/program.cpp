#include "engine/program.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "engine/integer_operators.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

int64_t opset_of(const Model& model, const std::string& domain) {
  const auto it = model.opsets.find(domain == "ai.onnx" ? "" : domain);
  return it == model.opsets.end() ? 1 : it->second;
}

/// Kernels compute with these numbers, so what no size or axis can be stops here.
void check_attributes(const Node& node) {
  const OpFacts* facts = operators().facts(node.domain, node.op);
  if (facts == nullptr || facts->ints_are_values) return;
  const auto check = [&](const Attribute& attribute, int64_t value) {
    if (value <= kLargestSize && value >= -kLargestSize) return;
    fail(ErrorCode::InvalidInput, node.label(), "attribute '{}' is {}; numbers up to 2^31 are accepted", attribute.name,
         value);
  };
  for (const Attribute& attribute : node.attributes) {
    if (const auto* number = std::get_if<int64_t>(&attribute.value)) check(attribute, *number);
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute.value)) {
      for (const int64_t value : *numbers) check(attribute, value);
    }
  }
}

}  // namespace

std::shared_ptr<Program> Program::compile(Model model, Runs runs) {
  guard_memory();
  unfold_integer_operators(model.graph);
  const auto shared = std::make_shared<Model>(std::move(model));
  std::vector<std::string> unsupported;
  auto program = ProgramBuilder(shared, shared->graph, unsupported).build();
  if (!unsupported.empty()) {
    fail(ErrorCode::Unsupported, shared->graph.name, "{} node{} cannot run:\n  {}", unsupported.size(),
         unsupported.size() == 1 ? "" : "s", fmt::join(unsupported, "\n  "));
  }
  program->runs_ = runs;
  return program;
}

int32_t Program::find_value(std::string_view name) const {
  const auto it = ids_.find(name);
  return it == ids_.end() ? -1 : it->second;
}

int64_t Program::find_step(std::string_view id) const {
  const int32_t made = find_value(id);
  const auto found = std::ranges::find_if(
      steps_, [&](const Step& step) { return made >= 0 && !step.outputs.empty() && step.outputs[0] == made; });
  return found == steps_.end() ? -1 : found - steps_.begin();
}

void Program::exchange(int32_t constant, const Tensor& contents) {
  const std::string& name = names_[static_cast<size_t>(constant)];
  std::ranges::find(model_->graph.initializers, name, &Initializer::name)->tensor = contents;
  constants_[static_cast<size_t>(constant_index_[static_cast<size_t>(constant)])].second = to_value(contents);
}

std::vector<Value> Program::new_table() const {
  std::vector<Value> table(names_.size());
  for (const auto& [id, value] : constants_) table[static_cast<size_t>(id)] = value;
  return table;
}

void Program::run_step(size_t index, std::vector<Value>& table, const InputEdit& edit, bool shapes_only) const {
  const Step& step = steps_[index];
  std::vector<const Value*> inputs(step.inputs.size());
  std::vector<Value> edited(edit ? step.inputs.size() : 0);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const int32_t id = step.inputs[i];
    if (id < 0 || !table[static_cast<size_t>(id)].defined()) continue;
    inputs[i] = &table[static_cast<size_t>(id)];
    if (edit) {
      edited[i] = *inputs[i];
      edit(i, edited[i]);
      inputs[i] = &edited[i];
    }
  }
  std::vector<Value> outputs(step.outputs.size());
  Call call(inputs, outputs, shapes_only);
  run_kernel(step.kernel, call, graph_->nodes[index]);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (step.outputs[i] >= 0) table[static_cast<size_t>(step.outputs[i])] = std::move(outputs[i]);
  }
}

std::vector<Value> Program::run(std::vector<Value> inputs) const {
  std::vector<Value> table = new_table();
  for (size_t i = 0; i < inputs.size() && i < inputs_.size(); ++i) {
    if (inputs[i].defined()) table[static_cast<size_t>(inputs_[i])] = std::move(inputs[i]);
  }
  return run_table(std::move(table));
}

std::vector<Value> Program::run_table(std::vector<Value> table) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    run_step(i, table);
    for (const int32_t id : steps_[i].dead) table[static_cast<size_t>(id)] = {};
  }
  std::vector<Value> outputs;
  outputs.reserve(outputs_.size());
  for (size_t i = 0; i < outputs_.size(); ++i) outputs.push_back(output(table, i));
  return outputs;
}

const Value& Program::output(const std::vector<Value>& table, size_t index) const {
  const Value& value = table[static_cast<size_t>(outputs_[index])];
  if (!value.defined()) fail_unset(outputs_[index]);
  return value;
}

void Program::fail_unset(int32_t value) const {
  const std::string& name = names_[static_cast<size_t>(value)];
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (std::ranges::find(steps_[i].outputs, value) == steps_[i].outputs.end()) continue;
    fail(ErrorCode::InvalidInput, graph_->nodes[i].label(), "its operator does not make the output '{}'", name);
  }
  fail(ErrorCode::InvalidInput, name, "this output has no value");
}

ProgramBuilder::ProgramBuilder(std::shared_ptr<Model> model, const Graph& graph, std::vector<std::string>& unsupported,
                               std::map<std::string, Value> captured_constants)
    : model_(std::move(model)),
      graph_(graph),
      unsupported_(unsupported),
      captured_constants_(std::move(captured_constants)) {}

int32_t ProgramBuilder::define(const std::string& name) {
  const auto [it, added] = program_->ids_.emplace(name, static_cast<int32_t>(program_->names_.size()));
  if (added) program_->names_.push_back(name);
  return it->second;
}

int32_t ProgramBuilder::unnamed() {
  program_->names_.emplace_back();
  return static_cast<int32_t>(program_->names_.size()) - 1;
}

std::shared_ptr<Program> ProgramBuilder::build() {
  program_ = std::make_shared<Program>();
  program_->model_ = model_;
  program_->graph_ = &graph_;
  for (const ValueInfo& input : graph_.inputs) program_->inputs_.push_back(define(input.name));
  for (const std::string& name : captured_values(graph_)) {
    program_->inputs_.push_back(define(name));
    const auto constant = captured_constants_.find(name);
    if (constant != captured_constants_.end()) {
      program_->constants_.emplace_back(program_->inputs_.back(), constant->second);
    }
  }
  for (const Initializer& initializer : graph_.initializers) {
    const int32_t id = define(initializer.name);
    if (initializer.tensor.type() != DType::String) program_->constants_.emplace_back(id, to_value(initializer.tensor));
  }
  for (const Node& node : graph_.nodes) build_step(node);
  for (const ValueInfo& output : graph_.outputs) program_->outputs_.push_back(define(output.name));
  program_->constant_index_.assign(program_->names_.size(), -1);
  for (size_t i = 0; i < program_->constants_.size(); ++i) {
    program_->constant_index_[static_cast<size_t>(program_->constants_[i].first)] = static_cast<int32_t>(i);
  }
  find_last_uses();
  find_widened_weights();
  return program_;
}

void ProgramBuilder::build_step(const Node& node) {
  Step step;
  captured_.clear();
  check_attributes(node);
  subgraphs_.clear();
  const OpInfo info(node, opset_of(*model_, node.domain), *this);
  if (const KernelMaker* maker = operators().find(node.domain, node.op)) {
    step.facts = operators().facts(node.domain, node.op);
    try {
      step.kernel = (*maker)(info);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Unsupported) throw;
      unsupported_.push_back(error.where() == node.label() ? error.what()
                                                           : fmt::format("{}: {}", node.label(), error.what()));
    }
  } else {
    const std::string domain = node.domain.empty() ? "ai.onnx" : node.domain;
    unsupported_.push_back(
        fmt::format("{}: no such operator in the engine (domain {}, opset {})", node.label(), domain, info.opset()));
  }
  for (const std::string& input : node.inputs) step.inputs.push_back(input.empty() ? -1 : define(input));
  step.inputs.insert(step.inputs.end(), captured_.begin(), captured_.end());
  for (const std::string& output : node.outputs) step.outputs.push_back(output.empty() ? unnamed() : define(output));
  if (step.outputs.empty()) step.outputs.push_back(unnamed());
  step.subgraphs = std::move(subgraphs_);
  program_->steps_.push_back(std::move(step));
}

void ProgramBuilder::find_last_uses() {
  std::vector<int64_t> last(program_->names_.size(), -1);
  for (size_t i = 0; i < program_->steps_.size(); ++i) {
    const auto touch = [&](int32_t id) {
      if (id >= 0) last[static_cast<size_t>(id)] = static_cast<int64_t>(i);
    };
    std::for_each(program_->steps_[i].inputs.begin(), program_->steps_[i].inputs.end(), touch);
    std::for_each(program_->steps_[i].outputs.begin(), program_->steps_[i].outputs.end(), touch);
  }
  for (const int32_t id : program_->outputs_) last[static_cast<size_t>(id)] = -1;
  for (size_t id = 0; id < last.size(); ++id) {
    if (last[id] >= 0 && !program_->is_constant(static_cast<int32_t>(id))) {
      program_->steps_[static_cast<size_t>(last[id])].dead.push_back(static_cast<int32_t>(id));
    }
  }
}

void ProgramBuilder::find_widened_weights() {
  std::vector<bool> only_weight(program_->names_.size(), true);
  for (const int32_t id : program_->outputs_) only_weight[static_cast<size_t>(id)] = false;
  for (size_t i = 0; i < program_->steps_.size(); ++i) {
    const Node& node = graph_.nodes[i];
    const bool product = node.domain.empty() && (node.op == "MatMul" || node.op == "Gemm");
    const std::vector<int32_t>& inputs = program_->steps_[i].inputs;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (inputs[k] >= 0 && !(product && k == 1)) only_weight[static_cast<size_t>(inputs[k])] = false;
    }
  }
  for (size_t i = 0; i < program_->steps_.size(); ++i) {
    const Node& node = graph_.nodes[i];
    Step& step = program_->steps_[i];
    step.widens_weights = node.domain.empty() && node.op == "Cast" && step.inputs.size() == 1 && step.inputs[0] >= 0 &&
                          node.get_int("to", 0) == static_cast<int64_t>(DType::Float32) &&
                          only_weight[static_cast<size_t>(step.outputs[0])];
  }
}

const Tensor* ProgramBuilder::constant(const std::string& value) const {
  const Initializer* initializer = graph_.find_initializer(value);
  return initializer == nullptr ? nullptr : &initializer->tensor;
}

Subgraph ProgramBuilder::subgraph(const Node& node, const std::string& attribute) {
  const auto* graph = node.get_if<std::shared_ptr<Graph>>(attribute);
  if (graph == nullptr) fail(ErrorCode::InvalidInput, node.label(), "the attribute '{}' must hold a graph", attribute);
  const std::vector<std::string> captured = captured_values(**graph);
  std::map<std::string, Value> constants;
  for (const auto& [id, value] : program_->constants_) {
    const std::string& name = program_->names_[static_cast<size_t>(id)];
    if (std::ranges::find(captured, name) != captured.end()) constants.emplace(name, value);
  }
  Subgraph subgraph;
  subgraph.program = ProgramBuilder(model_, **graph, unsupported_, std::move(constants)).build();
  for (const std::string& name : captured) {
    subgraph.captures.push_back(node.inputs.size() + captured_.size());
    captured_.push_back(define(name));
  }
  subgraphs_[attribute] = subgraph;
  return subgraph;
}

std::vector<Value> Subgraph::arguments(const Call& call, std::vector<Value> inputs) const {
  inputs.resize(program->graph().inputs.size());
  for (const size_t position : captures) inputs.push_back(call.has(position) ? call.value(position) : Value{});
  return inputs;
}

std::vector<Value> Subgraph::run(const Call& call, std::vector<Value> inputs) const {
  return program->run(arguments(call, std::move(inputs)));
}

}  // namespace kaon
