#pragma once
#include <functional>

namespace kaon {

/// Runs body(0) … body(count - 1), one thread each, and waits. `body` must not throw.
/// CMake compiles either parallel_openmp.cpp or parallel_std.cpp.
void run_pieces(int count, const std::function<void(int)>& body);

/// To be called now and then by whoever is about to start parallel work: lets idle threads wait long for the next loop
/// where the machine is idle, and sleep at once where others want the cores.
void adapt_waits();

}  // namespace kaon
