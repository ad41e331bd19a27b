// Linked into every executable of ours. Idle threads of OpenMP and of OpenBLAS spin for milliseconds before they sleep;
// beside another busy thread they then hold the core that the working one needs, and a run takes up to ten times as
// long. A few microseconds are enough to catch the next parallel loop. Both libraries ask the environment once, when
// they are loaded, which is before anything of ours runs: so their questions are answered here, unless the user has
// set the policy.
#include <cstring>

extern char** environ;

namespace {

char* find(const char* name) {
  const size_t length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) == 0 && (*entry)[length] == '=') return *entry + length + 1;
  }
  return nullptr;
}

bool is(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

}  // namespace

extern "C" char* getenv(const char* name) noexcept {
  static char spins[] = "1000";
  static char cycles[] = "14";  // 2^14
  if (char* value = find(name)) return value;
  if (is(name, "GOMP_SPINCOUNT") && find("OMP_WAIT_POLICY") == nullptr) return spins;
  if (is(name, "OPENBLAS_THREAD_TIMEOUT")) return cycles;
  return nullptr;
}
