#include "io/safetensors/safetensors_draft.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "io/safetensors/safetensors_header.h"

namespace kaon {

SafetensorsDraft::SafetensorsDraft(std::filesystem::path path, std::vector<PlannedTensor> tensors,
                                   const SafetensorsMetadata& metadata)
    : path_(std::move(path)) {
  sort_as_written(tensors, path_.string());
  const std::string header = safetensors_header(tensors, metadata);
  int64_t at = std::ssize(header);
  for (const PlannedTensor& tensor : tensors) {
    const int64_t size = stored_bytes(tensor.type, element_count(tensor.shape));
    places_[tensor.name] = {at, at + size};
    at += size;
  }
  bytes_ = at;
  constexpr mode_t kAsAsked = 0666;  // less what the umask takes
  file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kAsAsked);
  if (file_ < 0) fail(ErrorCode::Io, path_.string(), "cannot be written: {}", std::strerror(errno));
  const int error = ::ftruncate(file_, bytes_) == 0 ? ::posix_fallocate(file_, 0, bytes_) : errno;
  if (error != 0) {
    ::close(file_);
    fail(ErrorCode::Io, path_.string(), "no room for {} bytes: {}", bytes_, std::strerror(error));
  }
  write_at(0, std::as_bytes(std::span(header)));
}

SafetensorsDraft::~SafetensorsDraft() {
  if (file_ >= 0) ::close(file_);
}

int64_t SafetensorsDraft::place_of(const std::string& name, int64_t offset, int64_t bytes) const {
  const auto it = places_.find(name);
  if (it == places_.end() || offset < 0 || bytes > it->second.end - it->second.begin - offset) {
    fail(ErrorCode::InvalidInput, path_.string(), "{} bytes at {} of the tensor '{}' have no place", bytes, offset,
         name);
  }
  return it->second.begin + offset;
}

void SafetensorsDraft::write(const std::string& name, int64_t offset, std::span<const std::byte> bytes) {
  write_at(place_of(name, offset, std::ssize(bytes)), bytes);
}

void SafetensorsDraft::copy(const std::string& name, const CheckpointTensor& from) {
  const int64_t all = from.tensor.byte_size();
  off_t in = from.offset, out = place_of(name, 0, all);
  const int file = ::open(from.file.c_str(), O_RDONLY | O_CLOEXEC);
  const off_t end = out + all;
  ssize_t count = file < 0 ? -1 : 1;
  while (count > 0 && out < end) count = ::copy_file_range(file, &in, file_, &out, static_cast<size_t>(end - out), 0);
  if (file >= 0) ::close(file);
  // Not every pair of file systems can.
  if (out < end) write_at(out, from.tensor.bytes().last(static_cast<size_t>(end - out)));
}

void SafetensorsDraft::write_at(int64_t at, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(file_, bytes.data(), bytes.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail(ErrorCode::Io, path_.string(), "cannot be written: {}", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(count));
    at += count;
  }
}

void SafetensorsDraft::finish() {
  const int file = std::exchange(file_, -1);
  if (::close(file) != 0) fail(ErrorCode::Io, path_.string(), "cannot be written: {}", std::strerror(errno));
}

}  // namespace kaon
