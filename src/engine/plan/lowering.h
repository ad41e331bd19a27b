#pragma once
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/plan/actions.h"
#include "engine/plan/plan_op.h"
#include "engine/plan/runtime.h"
#include "engine/program.h"
#include "engine/spatial.h"

namespace kaon {

/// What oneDNN made for a product, shared by all of one kind: repeated layers.
struct Described {
  dnnl::primitive_desc description;
  bool is_fast = false;
  dnnl::primitive primitive;
};
using DescribedProducts = std::map<std::string, std::shared_ptr<Described>>;

/// Weights in the layouts that oneDNN asked for, shared by all plans of a program.
class PackedWeights {
 public:
  DescribedProducts of_any_rows;  ///< products that are made once for any number of rows

  /// Keeps `tensor` alive, so that its address stands for it. The result may be that very memory. `from` speaks of
  /// float32; a 16-bit tensor is widened.
  dnnl::memory pack(const at::Tensor& tensor, const Desc& from, const Desc& to);
  /// Weights and bias (which may be undefined) of a convolution with a batch norm in them: w·scale, b·scale + shift.
  std::pair<at::Tensor, at::Tensor> fold(const at::Tensor& weights, const at::Tensor& bias, const at::Tensor& scale,
                                         const at::Tensor& shift);
  /// The int8 codes of weights that are codes times `scales`, one for each output; undefined where they are not.
  at::Tensor codes(const at::Tensor& weights, const at::Tensor& scales);
  /// What was packed of the old weights holds the new ones.
  void exchange(const Exchanged& exchanged);
  /// Forgets what was made of tensors that nobody else holds any more.
  void drop_unused();

 private:
  struct Packed {
    at::Tensor source;
    Desc from, to;
    dnnl::memory packed;
  };
  struct Folded {
    at::Tensor source, bias, scale, shift;
    std::pair<at::Tensor, at::Tensor> folded;
  };
  struct Coded {
    at::Tensor source, scales, codes;
  };
  std::unordered_multimap<const void*, Packed> packed_;
  std::unordered_multimap<const void*, Folded> folded_;
  std::unordered_multimap<const void*, Coded> coded_;
};

/// A value that is alive between two parts of a plan.
struct LiveValue {
  int32_t value = -1;
  Desc desc;              ///< of a float32 value; others are row-major
  bool external = false;  ///< the caller's input or an ATen kernel's result, which nothing is written over
  size_t offset = 0;      ///< of its bytes among those of all live values
  size_t bytes = 0;
};

/// The ops [first, last) of a fused graph.
struct PlanPart {
  size_t first = 0;
  size_t last = SIZE_MAX;
  std::vector<LiveValue> live;  ///< at `first`, unless that is 0: there the program's inputs are
};

dnnl::eltwise_forward::primitive_desc eltwise_desc(const PostOp& step, const Desc& desc);

/// What lowering hands to the plan.
struct Lowered {
  std::vector<LiveValue> part_live;  ///< PlanPart::live …
  std::vector<int32_t> live_in;      ///< … and its slots
  std::vector<LiveValue> live_out;   ///< at PlanPart::last
  std::vector<int32_t> live_out_slots;
  std::vector<bool> cuttable;  ///< by op: whether a part may start there and still do what the whole would
  std::vector<PlanSlot> slots;
  std::vector<std::unique_ptr<Action>> actions;
  std::vector<int32_t> inputs;   ///< by the program's inputs; -1 where nobody reads it
  std::vector<int32_t> outputs;  ///< by the program's outputs
  std::vector<dnnl::memory> constants;
  std::vector<at::Tensor> owners;  ///< of memory that actions refer to
};

/// Turns fused ops into actions on slots: chooses layouts, inserts reorders, works in place where a value dies, and
/// leaves to the node's ATen kernel what has no better way.
class Lowering {
 public:
  /// Each is told the hook, the value's id and its contents.
  struct HookCalls {
    std::function<void(int32_t, int32_t, Value&)> show;
    std::function<void(int32_t, int32_t, std::span<const float>)> watch;
    std::function<void(int32_t, int32_t, const Value&)> watch_tensor;
    std::function<void(int32_t, int32_t, const Pixels&)> watch_pixels;
    /// Whether this hook is to be called by `watch_tensor`, and not by `watch` …
    std::function<bool(int32_t)> wants_tensor;
    /// … or by `watch_pixels`, where the value has such a form.
    std::function<bool(int32_t)> wants_pixels;
  };
  /// `described` is used and added to; it must outlive the Lowering.
  Lowering(const Program& program, PlanGraph graph, PackedWeights& packed, DescribedProducts& described,
           HookCalls hooks);
  Lowered run(const PlanPart& part = {});

 private:
  struct Form {
    Desc desc;  ///< Float32 values; others are always row-major
    int32_t slot = -1;
    bool is_plain = false;  ///< `desc` is that of row-major floats
  };
  /// int32, in the order of the value's elements, under its shape or one with finer axes: which element of the source
  /// each one is, counted from 1; 0: it is zero. Where it is a view of `countings_`, its strides say the same.
  using Map = at::Tensor;
  /// A value that is a rearrangement of another and has not been needed yet.
  struct Pending {
    int32_t source = -1;
    Map map;
    /// Applied in turn: they treat all elements alike and keep zeros, so they commute with the rearrangement.
    std::vector<std::shared_ptr<const FlatQuantizer>> quantizers = {};
  };
  struct ValueState {
    std::vector<Form> forms;
    std::optional<Pending> pending;
    int64_t reads_left = 0;
  };
  /// Where the elements of a rearrangement's outputs come from.
  struct Movement {
    const PlanOp* op;
    Map through;  ///< a rearrangement before it; undefined for none
    std::vector<Map> maps;
  };
  using Rule = bool (Lowering::*)(const PlanOp&);

  const ValueFacts& facts(int32_t id) const { return graph_.facts(id); }
  ValueState& state(int32_t id) { return states_[static_cast<size_t>(id)]; }
  bool is_float(int32_t id) const { return id >= 0 && facts(id).type == DType::Float32; }
  bool is_static_float(int32_t id) const { return is_float(id) && facts(id).is_static; }

  void lower(const PlanOp& op);
  void bring_inputs();
  void bring_live(const std::vector<LiveValue>& live);
  void take_live();
  /// Whether this value is there and will still be read.
  bool is_alive(int32_t id) const;
  static const std::unordered_map<std::string_view, Rule>& rules();

  // Slots and layouts (lowering.cpp)
  int32_t new_slot(int32_t value, size_t bytes, PlanSlot::Kind kind);
  /// Memory without a value.
  int32_t scratch_slot(size_t bytes);
  int32_t alias_slot(int32_t value, int32_t root);
  /// Gives `value` a slot of its own in `desc`.
  int32_t define(int32_t value, const Desc& desc);
  int32_t define_plain(int32_t value);
  void add_form(int32_t value, const Desc& desc, int32_t slot);
  void add_plain_form(int32_t value, int32_t slot);
  const Form& first_form(int32_t value);
  int32_t request(int32_t value, const Desc& desc);
  /// A slot that holds a float32 constant in `desc`.
  int32_t constant_slot(int32_t value, const Desc& desc);
  int32_t request_plain(int32_t value);
  /// request_plain for actions that read the slot's tensor, not only its memory.
  int32_t request_tensor(int32_t value);
  const Form* find_form(int32_t value, const Desc& desc);
  /// Leaves `value` to be made when it is needed.
  void defer(int32_t value, Pending pending);
  void materialise(int32_t value, const Desc& desc);
  /// Whether `op` may write over the memory of this slot, because nothing else will read it.
  bool may_overwrite(int32_t slot, const PlanOp& op) const;
  void emit(std::unique_ptr<Action> action, std::initializer_list<int32_t> reads,
            std::initializer_list<int32_t> writes);
  void touch(int32_t slot);
  void reorder(int32_t from, const Desc& from_desc, int32_t to, const Desc& to_desc);
  int32_t add_constant(const at::Tensor& tensor);
  /// `tensor` in another layout; the plan keeps it alive, as it may be used as it lies.
  dnnl::memory packed(const at::Tensor& tensor, const Desc& from, const Desc& to);
  dnnl::memory constant_memory(const at::Tensor& tensor, const Desc& desc);

  // Rules (lower_*.cpp): false when the op is not for them.
  bool lower_conv(const PlanOp& op);
  bool lower_column_conv(const PlanOp& op, const SlidingWindow& window);
  int32_t view_of(int32_t value, Shape shape);
  void share_memory(int32_t value, int32_t view);
  bool lower_conv_transpose(const PlanOp& op);
  bool lower_matmul(const PlanOp& op);
  bool lower_gemm(const PlanOp& op);
  bool lower_pool(const PlanOp& op);
  bool emit_pool(const PlanOp& op, dnnl::algorithm kind, const SlidingWindow& window);
  int32_t reuse_or_define(const PlanOp& op, int32_t in, int32_t value, const Desc& desc);
  bool lower_global_pool(const PlanOp& op);
  bool lower_batch_norm(const PlanOp& op);
  bool lower_softmax(const PlanOp& op);
  bool lower_attention(const PlanOp& op);
  bool lower_rotary_embedding(const PlanOp& op);
  bool lower_row_norm(const PlanOp& op);
  bool lower_eltwise(const PlanOp& op);
  bool lower_binary(const PlanOp& op);
  bool lower_reduce(const PlanOp& op);
  bool lower_concat(const PlanOp& op);
  bool lower_view(const PlanOp& op);
  bool lower_movement(const PlanOp& op);
  std::vector<Map> movement(const PlanOp& op, const Map& through);
  Map counting(const Shape& shape);
  Map reshaped(const Map& map, const Shape& shape);
  static std::optional<Map> transposed(const Map& map, const Shape& shape, const std::vector<int64_t>& order);
  bool is_strided(const Map& map) const;
  bool moves_alike(const PlanOp& a, const PlanOp& b) const;
  bool lower_gather(const PlanOp& op);
  void lower_aten(const PlanOp& op, const Ids& outputs);
  bool lower_fake_quantize(const PlanOp& op);
  void lower_add_quantize(const PlanOp& op);
  void lower_codes(const PlanOp& op);
  void emit_quantize(QuantizeAction::Steps steps, const Desc& desc, int32_t in, int32_t out);
  void lower_hook(const PlanOp& op);
  int threads_for(const PlanOp& op) const;
  void lower_watcher(const PlanOp& op);
  void lower_pixel_watcher(const PlanOp& op);

  using Describe = std::function<dnnl::primitive_desc(const Desc& destination, const dnnl::primitive_attr& attr)>;
  struct ConvolutionWindow {
    Shape strides, dilations, begin, end;  ///< oneDNN counts a dilation from 0
  };
  static Describe convolution(const Shape& x, const Shape& weights, bool with_bias, const ConvolutionWindow& window);
  /// A convolution or matrix product: where its arguments come from and how oneDNN is asked for it.
  struct Product {
    Describe describe;
    std::string key;  ///< equal for those that `describe` alike; "": none is
    int32_t source = -1;
    at::Tensor weights;  ///< constant; else weights_value
    int32_t weights_value = -1;
    Desc weights_desc;  ///< how the constant lies in memory
    at::Tensor bias;
    Desc destination;
    /// `describe` leaves the number of rows open: what oneDNN made says nothing of source and destination.
    bool open_rows = false;
    Desc source_desc;  ///< then
  };
  bool emit_product(const PlanOp& op, const Product& product);
  bool emit_matmul(const PlanOp& op, int32_t a, const Shape& a_dims, int32_t b, const Desc& b_desc,
                   const at::Tensor& bias, const Shape& y_dims);
  int32_t widened_once(int32_t weights, const Desc& desc);
  bool emit_small_products(const PlanOp& op, int32_t a, const Shape& a_dims, int32_t b, const Shape& b_dims,
                           const Shape& y_dims);
  size_t general_posts(const PlanOp& op, const Desc& destination);
  struct PostPlan {
    struct Operand {
      int argument;
      int32_t value;
      Desc desc;
    };
    std::vector<Operand> operands;
    std::string key;  ///< equal for those whose post_attr() is
  };
  std::shared_ptr<Described> described(const Product& product, const Desc& destination, const PostPlan& posts,
                                       const std::function<dnnl::primitive_attr()>& attr);
  static dnnl::primitive_attr post_attr(const PlanOp& op, const PostPlan& plan, int32_t sum);
  PostPlan post_plan(const PlanOp& op, const Desc& destination, int32_t sum) const;
  int32_t request_as(int32_t value, const Desc& desc);
  int32_t define_as(int32_t value, const Desc& desc);
  int32_t sum_candidate(const PlanOp& op, const Desc& destination);
  bool emit_upscaling(const PlanOp& op, const at::Tensor& weights, const at::Tensor& bias);
  void post_ops_apart(const PlanOp& op, int32_t value, bool folded);
  void emit_eltwise(const PostOp& step, const Desc& desc, int32_t in, int32_t out);

  const Program& program_;
  PlanGraph graph_;
  PackedWeights& packed_;
  DescribedProducts& described_;
  HookCalls hooks_;
  bool any_length_;  ///< the program's inputs may have any length, so that plans are made often
  bool once_;        ///< a plan for more than a token runs once: it was said, or texts grow by a token at a time
  std::vector<ValueState> states_;
  std::vector<int32_t> deferred_;  ///< values that are still to be made
  std::vector<Movement> movements_;
  std::vector<at::Tensor> countings_;          ///< 1, 2, 3 …, the longest last
  std::vector<std::pair<Map, Map>> reshaped_;  ///< maps under other shapes
  std::vector<std::vector<int32_t>> holders_;  ///< by root slot: values whose bytes lie there
  Lowered out_;
};

}  // namespace kaon
