#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace kaon {

class Program;
class Plans;

/// Sees a value; returns another of the same type and shape to be used in its place, or nothing.
/// The tensor's bytes are on loan: they may change once the hook returns.
using Hook = std::function<std::optional<Tensor>(const std::string& value, const Tensor& tensor)>;

/// Sees the elements of a float32 value, each once, in whatever order they lie in memory, without padding. A large
/// batch may come in several calls, one for each slice of it. Cheaper than a Hook: the value stays in the layout it
/// has, and the batch stays in the cache. The span is on loan until the watcher returns.
using Watcher = std::function<void(const std::string& value, std::span<const float> elements)>;

/// A value as a TensorWatcher sees it.
struct Shown {
  const std::string& value;  ///< its name
  const Tensor& tensor;      ///< on loan until the watcher returns
  int64_t first = 0;         ///< the first sample of the batch in it …
  int64_t count = 0;         ///< … and how many there are; 0: the value of the whole run

  /// The samples in it, where the run has `all`.
  int64_t samples(int64_t all) const { return count > 0 ? count : all; }
};

/// Sees a value of any type in its logical order and shape, and leaves it as it is: nothing is fused otherwise because
/// of that. A large batch may come in several calls, one for each slice of it, in order.
using TensorWatcher = std::function<void(const Shown& shown)>;

/// A place in the graph to look at: a value, or only what one node reads of it.
struct Edge {
  std::string value;
  /// "": the value itself, seen by every reader. Else the id (graph/node_id.h) of the node …
  std::string node;
  /// … and of its input.
  int64_t input = 0;
};

class Hooks {
 public:
  struct Entry {
    Edge edge;
    // One of these:
    Hook hook;
    Watcher watcher;
    TensorWatcher tensor_watcher;
  };

  void add(Edge edge, Hook hook) { entries_.push_back({std::move(edge), std::move(hook), nullptr, nullptr}); }
  void add(std::string value, Hook hook) { add(Edge{std::move(value)}, std::move(hook)); }
  /// A run throws InvalidInput when the value is not float32.
  void watch(Edge edge, Watcher watcher) {
    entries_.push_back({std::move(edge), nullptr, std::move(watcher), nullptr});
  }
  void watch(std::string value, Watcher watcher) { watch(Edge{std::move(value)}, std::move(watcher)); }
  void watch_tensor(Edge edge, TensorWatcher watcher) {
    entries_.push_back({std::move(edge), nullptr, nullptr, std::move(watcher)});
  }
  void watch_tensor(std::string value, TensorWatcher watcher) {
    watch_tensor(Edge{std::move(value)}, std::move(watcher));
  }
  const std::vector<Entry>& all() const { return entries_; }
  bool empty() const { return entries_.empty(); }

 private:
  std::vector<Entry> entries_;
};

/// The same model with parts of it changed. What it computes is what a model of its own with these changes would, bit
/// for bit, without being compiled, traced or packed anew.
struct Variant {
  /// FakeQuantize nodes, by what they make: they pass on what they read.
  std::set<std::string> off;
  /// Initializers with other contents, of the same type and shape.
  TensorMap constants;

  bool empty() const { return off.empty() && constants.empty(); }
};

/// A run in progress: stops after any node, forks cheaply (copies share tensors), goes on. Values are freed at last
/// use.
class Frame {
 public:
  Frame(const Frame&);
  Frame& operator=(const Frame&);
  Frame(Frame&&) noexcept;
  Frame& operator=(Frame&&) noexcept;
  ~Frame();

  /// Index of the node that runs next; node_count() when done.
  int64_t position() const;
  int64_t node_count() const;
  bool done() const { return position() == node_count(); }
  /// Runs the next node.
  void step();
  /// Runs all nodes before `node`.
  void run_until(int64_t node);
  void finish() { run_until(node_count()); }

  /// A value that is alive now; throws InvalidInput when it is not made yet, already freed or unknown.
  Tensor value(const std::string& name) const;
  /// Replaces a value that is alive now.
  void set(const std::string& name, const Tensor& tensor);
  /// The graph's outputs; the frame must be done.
  std::vector<Tensor> outputs() const;

 private:
  friend class Engine;
  struct State;
  explicit Frame(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// How often a plan is going to run: weights are laid out anew for one that runs often.
enum class Runs : uint8_t { Often, Once };

/// A model made ready to run. Copies nothing of the weights; safe to use from one thread at a time.
class Engine {
 public:
  /// Throws Unsupported with one message that lists every node it cannot run.
  explicit Engine(Model model, Runs runs = Runs::Often);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const Model& model() const;

  /// The graph's outputs, in its order. Fused and memory-planned; plans are kept by input shapes and hooked edges, the
  /// most recent ones. To ask many variants about the same data, see Replay.
  std::vector<Tensor> run(const TensorMap& inputs, const Hooks& hooks = {}, const Variant& variant = {});
  /// A run that can be stopped and forked. `keep` names values that must stay alive to the end.
  Frame start(const TensorMap& inputs, const std::vector<std::string>& keep = {}) const;

 private:
  friend class Replay;
  std::shared_ptr<const Program> program_;
  std::unique_ptr<Plans> plans_;
};

/// The nodes of `model` that the engine cannot run, each as "Op 'name': reason".
std::vector<std::string> unsupported_nodes(const Model& model);

/// Evaluates one node on constants; what constant folding needs.
std::vector<Tensor> evaluate_node(const Node& node, const Model& model, std::span<const Tensor> inputs);

}  // namespace kaon
