#pragma once
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>
#include <vector>

#include "engine/value.h"

namespace kaon {

/// Where the bytes of a value (in one layout) lie during a run.
struct PlanSlot {
  enum class Kind {
    Arena,     ///< planned memory, reused when the value is dead
    Constant,  ///< static; `value` or the plan owns it
    External,  ///< set while running: the caller's input, or what an ATen kernel returned
  };
  Kind kind = Kind::Arena;
  size_t bytes = 0;
  int32_t root = -1;   ///< the slot whose memory this one shares; itself when it has its own
  int64_t first = -1;  ///< the actions that first write and last read it
  int64_t last = -1;
  Value value;             ///< Constant
  bool is_tensor = false;  ///< Arena: Runtime::values holds a view of it
  bool is_result = false;  ///< Arena, of a root: not in the arena, but new at every run, as the caller keeps it
  Shape shape;             ///< logical
  DType type = DType::Undefined;
};

/// The tables that actions work on.
struct Runtime {
  std::vector<void*> pointers;                ///< by slot
  std::vector<Value> values;                  ///< by slot: External ones, Constants, and PlanSlot::is_tensor
  std::vector<std::vector<int32_t>> aliases;  ///< by slot: others that share an External one's memory
  std::vector<Shape> shapes;                  ///< by slot, logical
  std::vector<DType> types;                   ///< by slot
  dnnl::stream* stream = nullptr;
  const std::byte* arena_begin = nullptr;
  const std::byte* arena_end = nullptr;

  /// Gives an External slot, and those that share its memory, the contiguous `value`.
  void set(int32_t slot, Value value);
  bool in_arena(const void* pointer) const { return pointer >= arena_begin && pointer < arena_end; }

  template <typename T>
  T* at(int32_t slot) const {
    return static_cast<T*>(pointers[static_cast<size_t>(slot)]);
  }
};

/// Weights that take the place of others, of the same type and shape, by where those lie.
using Exchanged = std::unordered_map<const void*, at::Tensor>;

/// `tensor`, or what takes its place.
at::Tensor current(const at::Tensor& tensor, const Exchanged& exchanged);

/// One piece of a plan's work.
class Action {
 public:
  Action() = default;
  Action(const Action&) = delete;
  Action& operator=(const Action&) = delete;
  virtual ~Action() = default;
  /// Called once, when every planned slot has its address.
  virtual void bind(Runtime&) {}
  /// Bytes of memory that it needs while it runs …
  virtual size_t scratch_bytes() const { return 0; }
  /// … and the slot they are at.
  virtual void use_scratch(int32_t) {}
  /// Whether the last bits of what it computes may depend on the number of threads.
  virtual bool rounds_by_threads() const { return false; }
  /// For those that hold a plan's weights themselves.
  virtual void exchange(const Exchanged&) {}
  virtual void run(Runtime&) = 0;
};

/// The CPU that oneDNN works on.
const dnnl::engine& dnnl_cpu();

/// What every primitive of a plan is made with: the plan gives it its scratch memory. oneDNN's own would belong to the
/// thread that made the primitive, and a plan may be run by any.
dnnl::primitive_attr plan_attr();

/// Whether oneDNN has an implementation for it, and a better one than its reference, which goes element by element.
bool is_fast(const dnnl::primitive_desc_base& description);

/// Whether two contiguous values are of one type and shape and hold the same bytes.
bool same_bytes(const Value& a, const Value& b);

using Desc = dnnl::memory::desc;
/// Row-major float32; a scalar is one element.
Desc plain_desc(const Shape& shape);
/// Whether `desc` is plain_desc(shape).
bool is_plain(const Desc& desc, const Shape& shape);
/// float32 in whatever layout oneDNN likes best.
Desc any_layout(const Shape& shape);
/// Elements that a buffer of this layout holds, padding included.
int64_t element_capacity(const Desc& desc);
/// Offset in elements of the element at logical index `index` (row-major over the dims).
class Offsets {
 public:
  explicit Offsets(const Desc& desc);
  int64_t of(int64_t index) const;

 private:
  std::vector<int64_t> dims_;
  std::vector<int64_t> strides_;
  std::vector<std::pair<int64_t, int64_t>> inner_;  ///< (axis, block), outermost first
};

}  // namespace kaon
