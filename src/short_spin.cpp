// Linked into every executable of ours. OpenMP's idle threads spin for milliseconds before they sleep; beside another
// busy process they then hold the core that the working thread needs, and a run takes ten times as long. A few
// microseconds are enough to catch the next parallel loop. libgomp asks the environment once, when it is loaded, which
// is before anything of ours runs: so its question is answered here, unless the user has set the policy.
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

}  // namespace

extern "C" char* getenv(const char* name) noexcept {
  static char spins[] = "1000";
  char* value = find(name);
  const bool ours = value == nullptr && std::strcmp(name, "GOMP_SPINCOUNT") == 0 && find("OMP_WAIT_POLICY") == nullptr;
  return ours ? spins : value;
}
