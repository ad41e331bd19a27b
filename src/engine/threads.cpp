#include "engine/threads.h"

#include <dlfcn.h>

#include "base/parallel.h"
#include "engine/aten.h"

namespace kaon {

void use_configured_threads() {
  static int current = 0;
  const int wanted = thread_count();
  if (wanted == current) return;
  at::set_num_threads(wanted);
  // libtorch calls whichever BLAS is installed; OpenBLAS keeps a pool of its own.
  if (void* set = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) reinterpret_cast<void (*)(int)>(set)(wanted);
  current = wanted;
}

}  // namespace kaon
