#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"

namespace kaon {

/// One file in a zip archive, stored or deflated.
struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t size = 0;                ///< unpacked
  std::span<const std::byte> data;  ///< as it lies in the archive
};

/// The members of an archive (zip64 too), their places checked. Throws CorruptFile or Unsupported.
std::vector<ZipMember> list_zip(std::span<const std::byte> file);

/// Unpacks a deflated member; throws CorruptFile when its size or checksum is not what the archive says.
std::shared_ptr<std::byte[]> inflate_member(const ZipMember& member);
/// Throws CorruptFile when a stored member's checksum is not what the archive says.
void check_stored_member(const ZipMember& member);

/// Writes an archive front to back. The zip64 form is used from `zip64_from` bytes or members on.
class ZipWriter {
 public:
  explicit ZipWriter(AtomicFile& file, uint64_t zip64_from = 0xFFFFFFFF) : file_(file), zip64_from_(zip64_from) {}

  /// The member's bytes are `head` and then `data`. Stored data starts at a multiple of 64 bytes of the file when the
  /// head's size is one.
  void add(const std::string& name, std::string_view head, std::span<const std::byte> data, bool deflate);
  /// Writes the directory; call once, last.
  void finish();

 private:
  struct Entry {
    std::string name;
    bool deflated;
    uint32_t crc;
    uint64_t packed, size, offset;
  };
  void write(std::string_view bytes);

  AtomicFile& file_;
  uint64_t zip64_from_;
  uint64_t at_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace kaon
