#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/interpreter.h"
#include "engine/plan/lowering.h"
#include "engine/thread_choice.h"

namespace kaon {

/// A program made ready for one set of input shapes: fused, laid out, memory planned.
class Plan {
 public:
  explicit Plan(Lowered lowered);

  /// `inputs` by the program's inputs. The results are new tensors.
  std::vector<Value> run(const std::vector<Value>& inputs);

 private:
  void place_slots();

  Lowered lowered_;
  Runtime runtime_;
  dnnl::stream stream_;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> arena_;
  std::vector<std::vector<int32_t>> release_;  ///< by action: External slots that nobody reads afterwards
};

/// The plans of one program, by input shapes and hooked edges.
class Plans {
 public:
  explicit Plans(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  /// Runs a planned program; the interpreter where shapes depend on the data. `table` holds constants and inputs.
  std::vector<Tensor> run(std::vector<Value> table, const Hooks& hooks);

 private:
  struct Entry {
    bool planned = false;        ///< false: shapes depend on the data
    std::unique_ptr<Plan> plan;  ///< null where a slice's plan serves
    int64_t slice = 0;           ///< samples in a slice; 0 = the batch is run whole
    ThreadChoice threads;
  };
  using Key = std::vector<int64_t>;
  /// Every input's type, rank and extents, without the first where `samples` is set; then every hook's kind and place.
  Key key_of(const std::vector<Value>& table, const Hooks& hooks, bool samples = false) const;
  Entry& entry(const std::vector<Value>& table, const Hooks& hooks);
  Entry make_entry(std::vector<Value> table, const Hooks& hooks);
  /// What the plan is made of; nothing where shapes depend on the data.
  std::optional<PlanGraph> traced(std::vector<Value> table, const Hooks& hooks) const;
  /// Samples to run at a time; `batch` where they cannot be run apart.
  int64_t slice_for(const std::vector<Value>& table, const Hooks& hooks, int64_t batch);
  /// Samples that fit into the caches together; nothing where they cannot be run apart.
  std::optional<int64_t> probe(const std::vector<Value>& table, const Hooks& hooks) const;
  /// The table with `count` samples of the batch.
  std::vector<Value> samples_of(const std::vector<Value>& table, int64_t first, int64_t count) const;
  std::vector<Value> run_slices(const std::vector<Value>& table, const Hooks& hooks, int64_t slice);
  std::vector<Value> inputs_of(const std::vector<Value>& table) const;
  std::vector<Tensor> run_entry(Entry& found, std::vector<Value> table, const Hooks& hooks);

  std::shared_ptr<const Program> program_;
  PackedWeights packed_;
  std::map<Key, Entry> entries_;
  std::map<Key, std::optional<int64_t>> probes_;  ///< by the keys of samples
  const Hooks* hooks_ = nullptr;                  ///< of the run in progress
};

}  // namespace kaon
