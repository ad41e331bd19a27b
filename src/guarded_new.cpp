// Linked into every executable of ours. mimalloc's operator new aborts the program when there is no memory left, and
// the system may grant what it does not have and kill the process later: so a large request is first compared with what
// is free, and a failure is an exception that names the bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "base/memory_budget.h"

#ifndef __SANITIZE_ADDRESS__  // which brings its own

namespace {

constexpr size_t kLarge = size_t{64} << 20;

void require(size_t bytes) {
  if (bytes >= kLarge) kaon::require_memory(static_cast<int64_t>(std::min(bytes, SIZE_MAX / 2)));
}

void* granted(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) {
  require(bytes);
  return granted(std::malloc(bytes == 0 ? 1 : bytes));
}

void* operator new[](size_t bytes) { return operator new(bytes); }

void* operator new(size_t bytes, std::align_val_t alignment) {
  require(bytes);
  const auto to = static_cast<size_t>(alignment);
  return granted(std::aligned_alloc(to, (bytes + to - 1) / to * to));
}

void* operator new[](size_t bytes, std::align_val_t alignment) { return operator new(bytes, alignment); }

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

#endif
