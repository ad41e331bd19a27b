#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/op.h"
#include "graph/graph.h"

namespace kaon {

/// One node made ready: values are indices into the run's table, -1 where an optional input is left out.
struct Step {
  Kernel kernel;
  const OpFacts* facts = nullptr;  ///< of its operator
  bool widens_weights = false;     ///< a Cast to float32 that matrix products alone read, as their second matrix
  std::vector<int32_t> inputs;     ///< the node's own, then what its subgraphs capture
  std::vector<int32_t> outputs;
  std::vector<int32_t> dead;                       ///< values nobody reads after this step
  std::map<std::string, Subgraph> subgraphs = {};  ///< by the attribute that holds each
};

using InputEdit = std::function<void(size_t input, Value& value)>;

/// A graph compiled for running: names resolved, attributes read, lifetimes known. Immutable but for `exchange`.
class Program {
 public:
  /// Throws Unsupported with every node that cannot run.
  static std::shared_ptr<Program> compile(Model model, Runs runs = Runs::Often);

  const Model& model() const { return *model_; }
  const Graph& graph() const { return *graph_; }
  Runs runs() const { return runs_; }
  const std::vector<Step>& steps() const { return steps_; }
  const std::vector<std::string>& value_names() const { return names_; }
  /// -1 when there is no such value.
  int32_t find_value(std::string_view name) const;
  /// The step of the node with this id; -1 when there is none.
  int64_t find_step(std::string_view id) const;
  /// The graph's inputs, then its captures.
  const std::vector<int32_t>& inputs() const { return inputs_; }
  const std::vector<int32_t>& outputs() const { return outputs_; }
  /// Initializers, by value; in a subgraph also those it captures, which are the defaults of these inputs.
  const std::vector<std::pair<int32_t, Value>>& constants() const { return constants_; }
  bool is_constant(int32_t value) const { return constant_index_[static_cast<size_t>(value)] >= 0; }
  /// An initializer's value; `value` must be a constant.
  const Value& constant(int32_t value) const {
    return constants_[static_cast<size_t>(constant_index_[static_cast<size_t>(value)])].second;
  }

  /// Gives an initializer that kernels get at every run other contents, of the same type and shape.
  void exchange(int32_t constant, const Tensor& contents);

  /// Whether `value` is the initializer of this name itself: an input that the caller left at its default.
  bool is_default(int32_t id, const Value& value) const {
    return is_constant(id) && value.tensor.is_same(constant(id).tensor);
  }

  /// Runs all steps on the graph's inputs and captures.
  std::vector<Value> run(std::vector<Value> inputs) const;
  /// Runs all steps on a table of values, freeing each at its last use, and gives the outputs.
  std::vector<Value> run_table(std::vector<Value> table) const;
  /// Output `index` of a finished run; throws InvalidInput where no kernel set it.
  const Value& output(const std::vector<Value>& table, size_t index) const;
  [[noreturn]] void fail_unset(int32_t value) const;
  /// A table with the constants in place.
  std::vector<Value> new_table() const;
  /// Runs one step; kernel failures come back as kaon::Error naming the node. `edit`, where given, may change what the
  /// step reads at input k, for this step alone. See Call for `shapes_only`.
  void run_step(size_t step, std::vector<Value>& table, const InputEdit& edit = nullptr,
                bool shapes_only = false) const;

 private:
  friend class ProgramBuilder;
  std::shared_ptr<Model> model_;
  const Graph* graph_ = nullptr;
  Runs runs_ = Runs::Often;
  std::vector<Step> steps_;
  std::vector<std::string> names_;
  std::map<std::string, int32_t, std::less<>> ids_;
  std::vector<int32_t> inputs_;
  std::vector<int32_t> outputs_;
  std::vector<std::pair<int32_t, Value>> constants_;
  std::vector<int32_t> constant_index_;  ///< into constants_, -1 for other values
};

/// Compiles one graph, and through OpInfo::subgraph the graphs inside it.
class ProgramBuilder {
 public:
  ProgramBuilder(std::shared_ptr<Model> model, const Graph& graph, std::vector<std::string>& unsupported,
                 std::map<std::string, Value> captured_constants = {});

  std::shared_ptr<Program> build();
  const Tensor* constant(const std::string& value) const;
  Subgraph subgraph(const Node& node, const std::string& attribute);

 private:
  int32_t define(const std::string& name);
  /// A value for an output that the node leaves unnamed: made and freed at once, so that every output has an id.
  int32_t unnamed();
  void build_step(const Node& node);
  void find_last_uses();
  void find_widened_weights();

  std::shared_ptr<Model> model_;
  const Graph& graph_;
  std::vector<std::string>& unsupported_;
  std::map<std::string, Value> captured_constants_;  ///< by name, from the graphs around this one
  std::shared_ptr<Program> program_;
  std::vector<int32_t> captured_;  ///< by the subgraphs of the node being built
  std::map<std::string, Subgraph> subgraphs_;
};

}  // namespace kaon
