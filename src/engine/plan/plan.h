#pragma once
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/interpreter.h"
#include "engine/plan/lowering.h"
#include "engine/plan/variant.h"

namespace kaon {

/// A program, or a part of it, made ready for one set of input shapes: fused, laid out, memory planned.
class Plan {
 public:
  explicit Plan(Lowered lowered);

  /// `inputs` by the program's inputs. The results are new tensors.
  std::vector<Value> run(const std::vector<Value>& inputs);

  // A part goes from `start` or `resume` through `execute` to `outputs` or `save`.
  void start(const std::vector<Value>& inputs);
  /// `live` holds the values alive before the part, as the part before it saved them, until the part is executed.
  void resume(const std::byte* live);
  void execute();
  /// Once for each execution.
  std::vector<Value> outputs();
  void save(std::byte* live) const;
  /// Whatever was made of the old weights holds the new ones, what is packed aside.
  void exchange(const Exchanged& exchanged);
  /// Whether the last bits of its results may depend on the number of threads.
  bool rounds_by_threads() const;
  const std::vector<LiveValue>& live_out() const { return lowered_.live_out; }
  const std::vector<bool>& cuttable() const { return lowered_.cuttable; }

 private:
  void place_slots();
  /// New memory for the outputs that the caller keeps.
  void renew_results();

  struct Result {
    int32_t output;              ///< a slot
    std::vector<int32_t> slots;  ///< those that share its memory
  };
  std::vector<Result> results_;
  Lowered lowered_;
  Runtime runtime_;
  dnnl::stream stream_;
  std::unique_ptr<std::byte[], void (*)(std::byte*)> arena_;
  std::vector<std::vector<int32_t>> release_;  ///< by action: External slots that nobody reads afterwards
};

/// The plans of one program, by input shapes and hooked edges: those that were used last.
class Plans {
 public:
  explicit Plans(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

  /// Runs a planned program; the interpreter where shapes depend on the data. `table` holds constants and inputs.
  std::vector<Tensor> run(std::vector<Value> table, const Hooks& hooks, const VariantIds& variant);
  /// The same for a part of a larger run: on values by the program's inputs, without hooks. Makes a few plans only, as
  /// shapes may change with every call.
  std::vector<Value> run_inputs(std::vector<Value> inputs);

  /// Other contents for weights, which nothing but products and norms may read. False: it cannot be done, and nothing
  /// is.
  bool exchange(const std::vector<std::pair<int32_t, Tensor>>& weights);
  /// How many plans were made.
  int64_t made() const { return made_; }

  /// The table in pieces that are run one after the other; nothing where shapes depend on the data.
  struct Slice {
    std::vector<Value> inputs;
    std::shared_ptr<const Traced> traced;
    int64_t first = 0;  ///< sample
  };
  std::vector<Slice> slices(const std::vector<Value>& table);
  /// The graph of a variant, ready to be lowered.
  PlanGraph fused(const Traced& traced, const VariantIds& variant);
  /// The plan of a part of a fused graph. `described` serves plans of variants that have most in common.
  std::unique_ptr<Plan> make_part(PlanGraph fused, const PlanPart& part, DescribedProducts& described);

 private:
  struct Entry {
    std::shared_ptr<const Traced> traced;  ///< null: shapes depend on the data, or a slice's plan serves
    int64_t slice = 0;                     ///< samples in a slice; 0 = the batch is run whole
    /// Of the variants that were run last, the newest first.
    std::list<std::pair<VariantIds, std::unique_ptr<Plan>>> plans;
  };
  using Key = std::vector<int64_t>;
  using Recent = std::list<std::pair<Key, Entry>>;
  /// Every input's type, rank and extents, without the first where `samples` is set; then every hook's kind and place.
  Key key_of(const std::vector<Value>& table, const Hooks& hooks, bool samples = false) const;
  Entry& entry(const std::vector<Value>& table, const Hooks& hooks);
  Entry make_entry(std::vector<Value> table, const Hooks& hooks);
  Plan& plan_of(Entry& entry, const VariantIds& variant);
  Lowering::HookCalls hook_calls();
  /// What plans are made of; null where shapes depend on the data.
  std::shared_ptr<const Traced> traced(std::vector<Value> table, const Hooks& hooks);
  /// Samples to run at a time; `batch` where they cannot be run apart.
  int64_t slice_for(const std::vector<Value>& table, const Hooks& hooks, int64_t batch);
  /// Samples that fit into the caches together; nothing where they cannot be run apart.
  std::optional<int64_t> probe(const std::vector<Value>& table, const Hooks& hooks);
  /// The table with `count` samples of the batch.
  std::vector<Value> samples_of(const std::vector<Value>& table, int64_t first, int64_t count) const;
  std::vector<Value> run_slices(const std::vector<Value>& table, const Hooks& hooks, const VariantIds& variant,
                                int64_t slice);
  std::vector<Value> inputs_of(const std::vector<Value>& table) const;
  int64_t batch_of(const std::vector<Value>& table) const;

  std::shared_ptr<const Program> program_;
  PackedWeights packed_;
  TraceShared shared_;
  Recent recent_;  ///< the newest first
  std::map<Key, Recent::iterator> entries_;
  std::map<Key, std::optional<int64_t>> probes_;  ///< by the keys of samples
  int64_t made_ = 0;
  const Hooks* hooks_ = nullptr;  ///< of the run in progress
  int64_t slice_first_ = 0;       ///< of the run in progress: the slice's samples
  int64_t slice_count_ = 0;       ///< 0: the batch is run whole
};

}  // namespace kaon
