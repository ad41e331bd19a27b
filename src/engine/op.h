#pragma once
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/op_facts.h"
#include "engine/value.h"
#include "graph/graph.h"

namespace kaon {

class Program;
class ProgramBuilder;

/// Sizes, strides, pads and axes in a file are at most this.
inline constexpr int64_t kLargestSize = int64_t{1} << 31;

/// One execution of one node: its inputs, and where its outputs go.
class Call {
 public:
  Call(std::span<const Value* const> inputs, std::span<Value> outputs, bool shapes_only = false)
      : inputs_(inputs), outputs_(outputs), shapes_only_(shapes_only) {}

  bool has(size_t input) const { return input < inputs_.size() && inputs_[input] != nullptr; }
  const Value& value(size_t input) const;
  const at::Tensor& in(size_t input) const { return value(input).tensor; }
  DType type(size_t input) const { return value(input).type; }
  size_t input_count() const { return inputs_.size(); }
  /// Integer or bool input as a vector (axes, indices).
  std::vector<int64_t> ints(size_t input) const;
  /// Likewise, sizes and pads: within ±kLargestSize, so that sums and products of a few stay far from overflow.
  std::vector<int64_t> sizes(size_t input) const;

  bool wants(size_t output) const { return output < outputs_.size(); }
  /// Only the outputs' shapes and types matter: kernels whose work grows with the data give out_zeros().
  bool shapes_only() const { return shapes_only_; }
  /// Sets an output; `type` is needed only where ATen's type does not tell (see Value).
  void out(size_t output, at::Tensor tensor);
  void out(size_t output, at::Tensor tensor, DType type);
  void out(size_t output, Value value);
  /// Sets an output of this shape: a zero that is seen everywhere, so that it takes no memory.
  void out_zeros(size_t output, at::IntArrayRef shape, DType type);

 private:
  std::span<const Value* const> inputs_;
  std::span<Value> outputs_;
  bool shapes_only_;
};

/// Runs a node. Attributes were read when the kernel was made, so a call looks nothing up.
/// Kernels stay differentiable: no in-place work on inputs, no raw data pointers where ATen calls would do.
using Kernel = std::function<void(Call&)>;

/// Inside a catch: throws what was caught again as kaon::Error of one line, at `where` unless it names its own place.
[[noreturn]] void rethrow_as_error(const std::string& where);

/// Runs a kernel; whatever it throws comes out as kaon::Error naming the node.
void run_kernel(const Kernel& kernel, Call& call, const Node& node);

/// A compiled subgraph of If, Loop or Scan. Its captured values are passed behind the node's own inputs.
struct Subgraph {
  std::shared_ptr<const Program> program;
  std::vector<size_t> captures;  ///< positions among the call's inputs

  /// The inputs of its program: its own, then the captured values.
  std::vector<Value> arguments(const Call& call, std::vector<Value> inputs) const;
  std::vector<Value> run(const Call& call, std::vector<Value> inputs) const;
};

/// What a maker may ask about its node while a program is compiled.
class OpInfo {
 public:
  OpInfo(const Node& node, int64_t opset, ProgramBuilder& builder) : node_(node), opset_(opset), builder_(builder) {}

  const Node& node() const { return node_; }
  /// The version of the node's domain.
  int64_t opset() const { return opset_; }
  size_t input_count() const { return node_.inputs.size(); }
  size_t output_count() const { return node_.outputs.size(); }
  bool has_input(size_t i) const { return i < node_.inputs.size() && !node_.inputs[i].empty(); }
  bool has_output(size_t i) const { return i < node_.outputs.size() && !node_.outputs[i].empty(); }
  /// The input's tensor where it is an initializer, else nullptr.
  const Tensor* constant(size_t input) const;
  Subgraph subgraph(const std::string& attribute) const;
  /// Throws Unsupported: this node, this reason. The compiler collects these over the whole model.
  [[noreturn]] void unsupported(const std::string& reason) const;

 private:
  const Node& node_;
  int64_t opset_;
  ProgramBuilder& builder_;
};

using KernelMaker = std::function<Kernel(const OpInfo&)>;

/// Operators by domain and name, each with what is known about it. Each file in ops/ registers one family.
class OpRegistry {
 public:
  void add(const std::string& name, KernelMaker maker, OpFacts facts, const std::string& domain = "");
  /// A maker for a plain function of the call, for operators without attributes.
  void add_simple(const std::string& name, Kernel kernel, OpFacts facts, const std::string& domain = "");
  const KernelMaker* find(const std::string& domain, const std::string& name) const;
  /// As registered; facts_of() asks a node's attributes too.
  const OpFacts* facts(const std::string& domain, const std::string& name) const;
  /// (domain, name), sorted.
  std::vector<std::pair<std::string, std::string>> names() const;

 private:
  struct Entry {
    KernelMaker maker;
    OpFacts facts;
  };
  const Entry* entry(const std::string& domain, const std::string& name) const;

  std::map<std::pair<std::string, std::string>, Entry> entries_;
};

inline constexpr const char* kMicrosoft = "com.microsoft";

/// Every operator under ops/. Built once.
const OpRegistry& operators();

}  // namespace kaon
