#pragma once
#include <functional>

namespace kaon {

/// Runs body(0) … body(count - 1), one thread each, and waits. `body` must not throw.
/// CMake compiles either parallel_openmp.cpp or parallel_std.cpp.
void run_pieces(int count, const std::function<void(int)>& body);

}  // namespace kaon
