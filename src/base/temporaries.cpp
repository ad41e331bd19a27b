#include "base/temporaries.h"

#include <mutex>
#include <set>

namespace kaon {
namespace {

/// Never destroyed: threads may still use it while the program ends.
struct Temporaries {
  std::mutex mutex;
  std::set<std::filesystem::path> paths;

  static Temporaries& all() {
    static auto* const temporaries = new Temporaries;
    return *temporaries;
  }
};

}  // namespace

void remember_temporary(const std::filesystem::path& path) {
  Temporaries& all = Temporaries::all();
  const std::lock_guard lock(all.mutex);
  all.paths.insert(std::filesystem::absolute(path));
}

void forget_temporary(const std::filesystem::path& path) {
  Temporaries& all = Temporaries::all();
  const std::lock_guard lock(all.mutex);
  all.paths.erase(std::filesystem::absolute(path));
}

void remove_temporaries() noexcept {
  constexpr int kTries = 20;  // another thread may be adding files to a folder
  Temporaries& all = Temporaries::all();
  all.mutex.lock();
  for (const std::filesystem::path& path : all.paths) {
    std::error_code error;
    for (int i = 0; i < kTries && (i == 0 || std::filesystem::exists(path, error)); ++i) {
      std::filesystem::remove_all(path, error);
    }
  }
}

}  // namespace kaon
