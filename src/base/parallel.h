#pragma once
#include <cstdint>
#include <functional>

namespace kaon {

/// Threads that parallel_for may use. Starts at the number of cores this process may run on.
int thread_count();
/// Throws InvalidInput unless 1 <= count <= 1024.
void set_thread_count(int count);

/// Calls body(begin, end) on disjoint pieces that cover [begin, end). A piece starts at a multiple of `grain` from
/// `begin`, and at most thread_count() pieces are made, so a range of up to `grain` runs on the calling thread.
/// Where pieces throw, the exception of the first of them in the range is rethrown. Nested calls run on the calling
/// thread. Runs on OpenMP (the pool that libtorch and oneDNN use), or on std::thread where KAON_THREADS=std. Where the
/// other threads lately lost their cores to some neighbour, the caller does all pieces, for a while.
void parallel_for(int64_t begin, int64_t end, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

/// While it lives, parallel_for does all its pieces on the thread that made it.
class OnThisThread {
 public:
  OnThisThread();
  ~OnThisThread();
  OnThisThread(const OnThisThread&) = delete;
  OnThisThread& operator=(const OnThisThread&) = delete;

 private:
  bool before_;
};

}  // namespace kaon
