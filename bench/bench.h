#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace kaon::bench {

/// What a case runs once its data exist. Buffers live in the closures and go when the case ends.
struct Work {
  std::function<void()> check;  ///< runs before the timing and throws kaon::Error if a result is wrong
  std::function<void()> kaon;
  std::function<void()> peer;  ///< empty where there is nothing to compare with
  /// Instead of `peer`, one in another process: runs n times and gives the seconds of each run, as measured there.
  std::function<std::vector<double>(int n)> remote_peer;
  /// Instead of all timing: what is reported for Kaon and for the peer, in the case's unit; less is better.
  std::function<std::pair<double, double>()> measure;
};

struct Case {
  std::string name;  ///< "int8/per_tensor/64Mi/2t"
  std::string peer_name;
  std::string unit = "ms";
  double amount = 0;  ///< how many `unit`·seconds one call does (GB for "GB/s"); 0: the time itself in ms is reported
  int threads = 0;    ///< thread_count() during the case; 0 = as it is
  std::function<Work()> prepare;
};

using Cases = std::vector<Case>;

/// Adds to this program's cases, from a namespace-scope constant of the file that defines them:
/// `const bool kAdded = bench::add([](bench::Cases& cases) { … });`
bool add(const std::function<void(Cases&)>& define);

}  // namespace kaon::bench
