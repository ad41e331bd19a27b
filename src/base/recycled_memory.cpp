#include "base/recycled_memory.h"

#include <map>
#include <mutex>
#include <utility>

namespace kaon {
namespace {

constexpr size_t kSmallest = size_t{1} << 20;  // the allocator keeps what is smaller by itself

using Memory = std::unique_ptr<std::byte[]>;

class Bin {
 public:
  Memory take(size_t size) {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.find(size);
    if (found == idle_.end()) return nullptr;
    Memory memory = std::move(found->second);
    idle_.erase(found);
    return memory;
  }

  void put(size_t size, Memory memory) {
    const std::lock_guard lock(mutex_);
    if (users_ > 0) idle_.emplace(size, std::move(memory));
  }

  void begin() {
    const std::lock_guard lock(mutex_);
    ++users_;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) idle_.clear();
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
  std::multimap<size_t, Memory> idle_;
};

/// Never destroyed: tensors may live until the program ends.
Bin& bin() {
  static Bin& one = *new Bin;
  return one;
}

}  // namespace

std::shared_ptr<std::byte> recycled_bytes(size_t size) {
  Memory memory = size < kSmallest ? nullptr : bin().take(size);
  if (!memory) memory = std::make_unique_for_overwrite<std::byte[]>(size);
  return {memory.release(), [size](std::byte* bytes) {
            Memory used(bytes);
            if (size >= kSmallest) bin().put(size, std::move(used));
          }};
}

Recycling::Recycling() { bin().begin(); }

Recycling::~Recycling() { bin().end(); }

}  // namespace kaon
