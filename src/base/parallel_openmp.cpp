#include <omp.h>

#include "base/parallel_backend.h"

namespace kaon {

void run_pieces(int count, const std::function<void(int)>& body) {
#pragma omp parallel num_threads(count)
  {
    // OpenMP may grant fewer threads than asked for.
    for (int piece = omp_get_thread_num(); piece < count; piece += omp_get_num_threads()) body(piece);
  }
}

}  // namespace kaon
