#include "base/atomic_file.h"

#include <ext/stdio_filebuf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/temporaries.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

using FileBuffer = __gnu_cxx::stdio_filebuf<char>;

/// What `path` stands for once its last component is no link; it need not exist.
fs::path without_links(fs::path path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::error_code error;
  for (int i = 0; i < kMostLinks; ++i) {
    const fs::path to = fs::read_symlink(path, error);
    if (error) return path;
    path = to.is_absolute() ? to : path.parent_path() / to;
  }
  return path;
}

/// Devices and pipes; and the links of /dev and /proc, which stand for what another program has open.
bool is_written_into(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) || fs::is_directory(status)) return false;
  if (!fs::is_regular_file(status)) return true;
  if (!fs::is_symlink(path, error)) return false;
  const fs::path first = fs::absolute(path, error).lexically_normal().relative_path();
  return !first.empty() && (*first.begin() == "dev" || *first.begin() == "proc");
}

/// Held while files of a folder are renamed; where a file system has no locks, nothing is held.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : descriptor_(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX);
  }
  ~FolderLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace

std::string random_suffix() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}", source(), source());
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  constexpr mode_t kAsAsked = 0666;  // less what the umask takes
  is_file_ = !is_written_into(path_);
  int descriptor = -1;
  if (is_file_) {
    target_ = without_links(path_);
    do {
      temporary_ = target_;
      temporary_ += fmt::format(".{}.part", random_suffix());
      descriptor = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kAsAsked);
    } while (descriptor < 0 && errno == EEXIST);
  } else {
    descriptor = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  }
  if (descriptor < 0) {
    temporary_.clear();
    fail(ErrorCode::Io, path_.string(), "cannot write: {}", std::strerror(errno));
  }
  if (is_file_) remember_temporary(temporary_);
  buffer_ = std::make_unique<FileBuffer>(descriptor, std::ios::out | std::ios::binary);
}

AtomicFile::~AtomicFile() {
  buffer_.reset();
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove(temporary_, ignored);
  forget_temporary(temporary_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  bytes_ += std::ssize(bytes);
  if (failure_ != 0) return;
  errno = 0;
  const auto count = static_cast<std::streamsize>(bytes.size());
  if (buffer_->sputn(reinterpret_cast<const char*>(bytes.data()), count) != count) failure_ = errno != 0 ? errno : EIO;
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::finish() {
  if (buffer_ == nullptr) return;
  errno = 0;
  const bool closed = static_cast<FileBuffer&>(*buffer_).close() != nullptr;
  buffer_.reset();
  if (!closed && failure_ == 0) failure_ = errno != 0 ? errno : EIO;
  if (failure_ != 0) fail(ErrorCode::Io, path_.string(), "cannot write: {}", std::strerror(failure_));
}

void AtomicFile::rename() {
  if (!is_file_) return;
  std::error_code error;
  fs::rename(temporary_, target_, error);
  if (error) fail(ErrorCode::Io, path_.string(), "cannot write: {}", error.message());
  forget_temporary(temporary_);
  temporary_.clear();
}

void AtomicFile::commit() {
  finish();
  rename();
}

void commit_together(std::span<const std::unique_ptr<AtomicFile>> files) {
  for (const auto& file : files) file->finish();
  for (const auto& file : files) {
    std::error_code error;
    if (!fs::is_directory(file->target_, error)) continue;
    fail(ErrorCode::Io, file->path_.string(), "cannot write: a folder has this name");
  }
  if (files.empty()) return;
  const FolderLock lock(files.front()->target_.parent_path());
  for (const auto& file : files) file->rename();
}

}  // namespace kaon
