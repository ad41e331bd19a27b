#pragma once
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/op.h"
#include "engine/pixels.h"
#include "engine/plan/runtime.h"
#include "engine/threads.h"

namespace kaon {

/// A oneDNN primitive and the slots of its arguments.
class DnnlAction : public Action {
 public:
  /// `primitive` was made with plan_attr().
  explicit DnnlAction(dnnl::primitive primitive);
  void slot(int argument, const Desc& desc, int32_t slot) { slots_.push_back({argument, slot, desc, {}, nullptr}); }
  void fixed(int argument, const dnnl::memory& memory) {
    fixed_.push_back(memory);
    arguments_.push_back({argument, memory.get()});
  }
  size_t scratch_bytes() const override { return scratch_.get_size(); }
  void use_scratch(int32_t at) override { slot(DNNL_ARG_SCRATCHPAD, scratch_, at); }
  void bind(Runtime& runtime) override;
  void run(Runtime& runtime) override;

 private:
  struct Argument {
    int argument;
    int32_t slot;
    Desc desc;
    dnnl::memory memory;
    void* handle;
  };
  dnnl::primitive primitive_;
  int threads_;  ///< that it was made for
  Desc scratch_;
  std::vector<Argument> slots_;
  std::vector<dnnl::memory> fixed_;
  std::vector<dnnl_exec_arg_t> arguments_;  ///< of `fixed_` and, once bound, of `slots_`
};

/// out[i] = in[map[i]], or 0 where map[i] < 0: any chain of slices, transposes, pads and layout changes of 4-byte
/// elements in one pass. Long runs are copied as such.
class ShuffleAction : public Action {
 public:
  ShuffleAction(int32_t in, int32_t out, std::vector<int32_t> map);
  void run(Runtime& runtime) override;

 private:
  struct Run {
    int32_t out, in, length;
  };
  int32_t in_, out_;
  std::vector<int32_t> map_;  ///< empty when runs_ serves
  std::vector<Run> runs_;
};

enum class BinaryKind { Add, Sub, Mul, Div, Min, Max };

/// Float32 with numpy broadcasting, row-major.
class BinaryAction : public Action {
 public:
  BinaryAction(BinaryKind kind, int32_t a, const Shape& a_shape, int32_t b, const Shape& b_shape, int32_t out,
               const Shape& out_shape);
  void run(Runtime& runtime) override;

 private:
  BinaryKind kind_;
  int32_t a_, b_, out_;
  // Axes from outside in, neighbours merged where both operands step alike.
  at::DimVector dims_, a_strides_, b_strides_;
};

enum class UnaryKind { Neg, Sqrt, Reciprocal, Square, Abs, Floor, Ceil };

class UnaryAction : public Action {
 public:
  UnaryAction(UnaryKind kind, int32_t in, int32_t out, int64_t count)
      : kind_(kind), in_(in), out_(out), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  UnaryKind kind_;
  int32_t in_, out_;
  int64_t count_;
};

/// Mean, sum or maximum over the trailing `inner` elements of each of `outer` rows.
enum class ReduceKind { Mean, Sum, Max };
class ReduceAction : public Action {
 public:
  ReduceAction(ReduceKind kind, int32_t in, int32_t out, int64_t outer, int64_t inner)
      : kind_(kind), in_(in), out_(out), outer_(outer), inner_(inner) {}
  void run(Runtime& runtime) override;

 private:
  ReduceKind kind_;
  int32_t in_, out_;
  int64_t outer_, inner_;
};

/// Row-major parts laid side by side: for each of `outer` rows, `bytes` of every part.
class ConcatAction : public Action {
 public:
  ConcatAction(std::vector<std::pair<int32_t, int64_t>> parts, int32_t out, int64_t outer)
      : parts_(std::move(parts)), out_(out), outer_(outer) {}
  void run(Runtime& runtime) override;

 private:
  std::vector<std::pair<int32_t, int64_t>> parts_;  ///< slot, bytes a row
  int32_t out_;
  int64_t outer_;
};

/// Rows of a table picked by indices that are known only while running (embeddings).
class GatherRowsAction : public Action {
 public:
  GatherRowsAction(int32_t table, int32_t indices, DType index_type, int32_t out, int64_t rows, int64_t count,
                   int64_t row_bytes, std::string where)
      : table_(table),
        indices_(indices),
        index_type_(index_type),
        out_(out),
        rows_(rows),
        count_(count),
        row_bytes_(row_bytes),
        where_(std::move(where)) {}
  void run(Runtime& runtime) override;

 private:
  int32_t table_, indices_;
  DType index_type_;
  int32_t out_;
  int64_t rows_, count_, row_bytes_;
  std::string where_;
};

/// A 16-bit matrix as float32, its elements in the same order.
class WidenAction : public Action {
 public:
  WidenAction(at::Tensor weights, int32_t out) : weights_(std::move(weights)), out_(out) {}
  void run(Runtime& runtime) override;
  void exchange(const Exchanged& exchanged) override { weights_ = current(weights_, exchanged); }

 private:
  at::Tensor weights_;
  int32_t out_;
};

/// A node's own ATen kernel; its outputs are External.
class AtenAction : public Action {
 public:
  /// `kernel` and `node` belong to the program, which outlives its plans.
  AtenAction(const Kernel& kernel, const Node& node, std::vector<int32_t> inputs, std::vector<int32_t> outputs)
      : kernel_(kernel), node_(node), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  void run(Runtime& runtime) override;
  bool rounds_by_threads() const override { return true; }  // ATen shares a long sum among them

 private:
  const Kernel& kernel_;
  const Node& node_;
  std::vector<int32_t> inputs_, outputs_;
};

/// Shows a value to a hook, in row-major form; what the hook returns takes its place.
class HookAction : public Action {
 public:
  HookAction(std::function<void(Value&)> show, int32_t in, int32_t out, int64_t bytes, std::string name)
      : show_(std::move(show)), in_(in), out_(out), bytes_(bytes), name_(std::move(name)) {}
  void run(Runtime& runtime) override;

 private:
  std::function<void(Value&)> show_;
  int32_t in_, out_;
  int64_t bytes_;
  std::string name_;
};

/// Shows a float32 value to a watcher, as it lies in memory.
class WatchAction : public Action {
 public:
  WatchAction(std::function<void(std::span<const float>)> show, int32_t in, int64_t count)
      : show_(std::move(show)), in_(in), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  std::function<void(std::span<const float>)> show_;
  int32_t in_;
  int64_t count_;
};

/// Shows a value to a watcher, in row-major form.
class WatchTensorAction : public Action {
 public:
  WatchTensorAction(std::function<void(const Value&)> show, int32_t in) : show_(std::move(show)), in_(in) {}
  void run(Runtime& runtime) override { show_(runtime.values[static_cast<size_t>(in_)]); }

 private:
  std::function<void(const Value&)> show_;
  int32_t in_;
};

/// Shows a value to a watcher where it lies.
class WatchPixelsAction : public Action {
 public:
  WatchPixelsAction(std::function<void(const Pixels&)> show, int32_t in, Pixels pixels)
      : show_(std::move(show)), in_(in), pixels_(std::move(pixels)) {}
  void run(Runtime& runtime) override {
    pixels_.data = runtime.at<const float>(in_);
    show_(pixels_);
  }

 private:
  std::function<void(const Pixels&)> show_;
  int32_t in_;
  Pixels pixels_;
};

}  // namespace kaon
