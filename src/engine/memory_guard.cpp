#include "engine/memory_guard.h"

#include "base/error.h"
#include "base/memory_budget.h"
#include "engine/aten.h"

namespace kaon {

namespace {

class GuardedAllocator : public at::Allocator {
 public:
  explicit GuardedAllocator(at::Allocator& inner) : inner_(inner) {}

  at::DataPtr allocate(size_t bytes) const override {
    require_memory(static_cast<int64_t>(bytes));
    return inner_.allocate(bytes);
  }
  at::DeleterFnPtr raw_deleter() const override { return inner_.raw_deleter(); }

 private:
  at::Allocator& inner_;
};

}  // namespace

void guard_memory() {
  static const bool installed = [] {
    static GuardedAllocator guarded(*c10::GetAllocator(at::kCPU));
    c10::SetAllocator(at::kCPU, &guarded, /*priority=*/1);
    return true;
  }();
  static_cast<void>(installed);
}

void require_room(std::span<const int64_t> shape, int64_t element_bytes) {
  const int64_t bytes = element_count(shape) * element_bytes;  // at most 2^48 elements
  require_memory(bytes, to_string(shape));
}

}  // namespace kaon
