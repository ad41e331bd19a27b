#pragma once
#include <cstdint>

namespace kaon {

/// Gives ATen, oneDNN and BLAS the thread count of base/parallel.h. Debian's libtorch starts with one.
void use_configured_threads();

/// As long as it lives, oneDNN makes and runs primitives with `count` threads on this thread. A primitive is to be run
/// with as many as it was made with.
class ThreadScope {
 public:
  explicit ThreadScope(int count);
  ~ThreadScope();
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

  static int current();
  /// 1 for work that is done before a second thread is awake.
  static int worth(int64_t products, int64_t elements);

 private:
  int before_;
  bool changed_;
};

}  // namespace kaon
