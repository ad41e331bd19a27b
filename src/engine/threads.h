#pragma once
#include "base/parallel.h"

namespace kaon {

/// Gives ATen, oneDNN and BLAS the thread count of base/parallel.h. Debian's libtorch starts with one.
void use_configured_threads();

/// While it lives, whatever ATen, oneDNN and parallel_for do from this thread stays on it. Work is split into the same
/// pieces as before, so results are the same bit for bit.
class CallingThreadOnly {
 public:
  CallingThreadOnly();
  ~CallingThreadOnly();
  CallingThreadOnly(const CallingThreadOnly&) = delete;
  CallingThreadOnly& operator=(const CallingThreadOnly&) = delete;

 private:
  OnThisThread pieces_;
  int before_;
};

}  // namespace kaon
