#include "base/spill.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base/error.h"

namespace kaon {

namespace {

/// A file without a name; the caller closes it.
int open_unnamed(int64_t bytes) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string name = (error ? std::filesystem::path("/tmp") : folder) / "kaon.XXXXXX";
  const int file = ::mkostemp(name.data(), O_CLOEXEC);
  if (file < 0) fail(ErrorCode::Io, name, "cannot be made: {}", std::strerror(errno));
  ::unlink(name.c_str());
  // Room is taken now, so that a full disk is an error here and no signal later.
  const int failed = ::posix_fallocate(file, 0, bytes);
  if (failed != 0) {
    ::close(file);
    fail(ErrorCode::Io, folder.string(), "has no room for {} bytes of intermediate values: {}", bytes,
         std::strerror(failed));
  }
  return file;
}

}  // namespace

SpillBuffer::SpillBuffer(int64_t bytes, int64_t in_memory) : size_(bytes), in_file_(bytes > in_memory) {
  if (bytes == 0) return;
  const int file = in_file_ ? open_unnamed(bytes) : -1;
  void* data = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      in_file_ ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, file, 0);
  const int error = errno;
  if (file >= 0) ::close(file);
  if (data == MAP_FAILED) {
    fail(ErrorCode::Io, "", "{} bytes of intermediate values cannot be kept: {}", bytes, std::strerror(error));
  }
  data_ = static_cast<std::byte*>(data);
}

SpillBuffer::SpillBuffer(SpillBuffer&& other) noexcept { *this = std::move(other); }

SpillBuffer& SpillBuffer::operator=(SpillBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(in_file_, other.in_file_);
  return *this;
}

SpillBuffer::~SpillBuffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

}  // namespace kaon
