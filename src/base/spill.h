#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace kaon {

/// Bytes that lie in memory while they are few, else in a temporary file that is mapped, so that the system may write
/// them out. The file has no name any more once it is open: nothing is left behind however the process ends.
class SpillBuffer {
 public:
  SpillBuffer() = default;
  /// `bytes` of memory, or of a file in the folder for temporary files where that is more than `in_memory`. Their
  /// contents are zero. Throws Io where the disk has no room for them.
  SpillBuffer(int64_t bytes, int64_t in_memory);
  SpillBuffer(SpillBuffer&& other) noexcept;
  SpillBuffer& operator=(SpillBuffer&& other) noexcept;
  ~SpillBuffer();

  std::span<std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  bool in_file() const { return in_file_; }

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
  bool in_file_ = false;
};

}  // namespace kaon
