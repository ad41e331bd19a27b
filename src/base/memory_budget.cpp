#include "base/memory_budget.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <limits>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace kaon {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
/// Looking costs some microseconds, making so much memory milliseconds.
constexpr int64_t kLookEvery = 64 * kMiB;

std::atomic<int64_t> limit{0};
std::atomic<int64_t> unseen{0};  ///< bytes asked for since the last look

/// Without the heap: operator new asks here.
class SmallFile {
 public:
  explicit SmallFile(const char* path) {
    const int file = ::open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    const ssize_t read = ::read(file, text_.data(), text_.size());
    ::close(file);
    size_ = read < 0 ? 0 : static_cast<size_t>(read);
  }

  /// The number behind `key`, or `otherwise` where there is none.
  int64_t number(std::string_view key, int64_t otherwise) const {
    const std::string_view text(text_.data(), size_);
    size_t at = text.find(key);
    if (at == std::string_view::npos) return otherwise;
    at = text.find_first_not_of(" \t", at + key.size());
    int64_t value = 0;
    const bool number =
        at != std::string_view::npos && std::from_chars(text.data() + at, text.data() + size_, value).ec == std::errc();
    return number ? value : otherwise;
  }

 private:
  std::array<char, 4096> text_;
  size_t size_ = 0;
};

int64_t machine_room() {
  const int64_t available = SmallFile("/proc/meminfo").number("MemAvailable:", kUnlimited / 1024) * 1024;
  // A container's own bound.
  const int64_t most = SmallFile("/sys/fs/cgroup/memory.max").number("", kUnlimited);
  const int64_t held = SmallFile("/sys/fs/cgroup/memory.current").number("", 0);
  return std::min(available, most == kUnlimited ? most : most - held);
}

int64_t resident() {
  const int64_t pages = SmallFile("/proc/self/statm").number(" ", 0);  // the second number
  return pages * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

void set_memory_limit(int64_t bytes) { limit = bytes; }

int64_t memory_room() {
  const int64_t room = limit == 0 ? kUnlimited : limit - resident();
  return std::max<int64_t>(std::min(room, machine_room()), 0);
}

void require_memory(int64_t bytes, const std::string& where) {
  if (bytes < kLookEvery && unseen.fetch_add(bytes, std::memory_order_relaxed) + bytes < kLookEvery) return;
  unseen.store(0, std::memory_order_relaxed);
  const int64_t room = memory_room();
  if (bytes <= room) return;
  fail(ErrorCode::InvalidInput, where, "{} ({} bytes) are needed, {} {} (--memory sets a limit)",
       human_bytes(static_cast<double>(bytes)), bytes, human_bytes(static_cast<double>(room)),
       limit == 0 ? "are free on this machine" : "are left");
}

}  // namespace kaon
