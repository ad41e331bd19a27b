#include "engine/threads.h"

#include <dlfcn.h>

#include "base/parallel.h"
#include "base/parallel_backend.h"
#include "engine/aten.h"

extern "C" {  // of the OpenMP library that libtorch uses
void omp_set_num_threads(int count) noexcept;
int omp_get_max_threads() noexcept;
}

namespace kaon {

void use_configured_threads() {
  adapt_waits();
  static thread_local int current = 0;  // OpenMP keeps the count for each thread that starts loops
  const int wanted = thread_count();
  if (wanted == current) return;
  // Not at::set_num_threads: it starts a second pool of threads, which spin. libtorch sets its own default count before
  // its first loop, so that has to have happened.
  at::internal::lazy_init_num_threads();
  omp_set_num_threads(wanted);
  // libtorch calls whichever BLAS is installed; OpenBLAS keeps a pool of its own.
  if (void* set = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(wanted);
  current = wanted;
}

int ThreadScope::current() { return omp_get_max_threads(); }

int ThreadScope::worth(int64_t products, int64_t elements) {
  constexpr int64_t kWork = int64_t{1} << 20;
  constexpr int64_t kProductsPerElement = 8;  // in the time that it takes to fetch one
  return products + kProductsPerElement * elements >= kWork ? current() : 1;
}

ThreadScope::ThreadScope(int count) : before_(current()), changed_(count != before_) {
  if (changed_) omp_set_num_threads(count);
}

ThreadScope::~ThreadScope() {
  if (changed_) omp_set_num_threads(before_);
}

}  // namespace kaon
