#include "base/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace kaon {

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)), temporary_(path_) {
  temporary_ += fmt::format(".{}.part", ::getpid());
  stream_.open(temporary_, std::ios::binary | std::ios::trunc);
  if (!stream_) fail(ErrorCode::Io, path_.string(), "cannot write: {}", std::strerror(errno));
}

AtomicFile::~AtomicFile() {
  if (temporary_.empty()) return;
  stream_.close();
  std::error_code ignored;
  std::filesystem::remove(temporary_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  stream_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

void AtomicFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void AtomicFile::commit() {
  stream_.close();
  if (!stream_) fail(ErrorCode::Io, path_.string(), "cannot write: {}", std::strerror(errno));
  std::error_code error;
  std::filesystem::rename(temporary_, path_, error);
  if (error) fail(ErrorCode::Io, path_.string(), "cannot write: {}", error.message());
  temporary_.clear();
}

}  // namespace kaon
