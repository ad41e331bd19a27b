#include "base/memory_usage.h"

#include <fstream>
#include <string>

namespace kaon {

double peak_memory_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    double kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib / 1024;
  }
  return 0;
}

}  // namespace kaon
