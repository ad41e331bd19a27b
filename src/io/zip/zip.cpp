#include "io/zip/zip.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "base/error.h"

// Layout: for each member a local header and its data; then the central directory, one record a member; then the end
// record that says where the directory starts. In zip64 a further end record and its locator stand before that one, and
// numbers that do not fit 16 or 32 bits are all ones there, with the real ones in an extra field of id 1.

namespace kaon {

namespace {

constexpr uint32_t kLocalHeader = 0x04034B50, kCentralHeader = 0x02014B50, kEnd = 0x06054B50;
constexpr uint32_t kEnd64 = 0x06064B50, kEnd64Locator = 0x07064B50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22, kEnd64Size = 56, kLocatorSize = 20;  // fixed parts
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint16_t kZip64Extra = 1, kAlignExtra = 0xD935;  // the second is zipalign's
constexpr uint32_t kMost32 = 0xFFFFFFFF;
constexpr uint16_t kMost16 = 0xFFFF;
constexpr uint64_t kAlignment = 64;
// The most that deflate can pack: 258 bytes in two bits.
constexpr uint64_t kMostRatio = 1032;

[[noreturn]] void corrupt(const char* why) {
  fail(ErrorCode::CorruptFile, "zip directory", "the archive is damaged: {}", why);
}

/// Little-endian numbers out of a bounded piece of the file.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t number(size_t count) {
    const auto piece = take(count);
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(piece[i]) << (8 * i);
    return value;
  }
  uint16_t u16() { return static_cast<uint16_t>(number(2)); }
  uint32_t u32() { return static_cast<uint32_t>(number(4)); }
  uint64_t u64() { return number(8); }
  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size()) corrupt("it ends inside a record");
    const auto piece = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return piece;
  }
  size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
};

std::span<const std::byte> from(std::span<const std::byte> file, uint64_t offset) {
  if (offset > file.size()) corrupt("a record lies past the end of the file");
  return file.subspan(offset);
}

struct Directory {
  uint64_t members, size, offset;
};

size_t find_end(std::span<const std::byte> file) {
  if (file.size() >= kEndSize) {
    const size_t last = file.size() - kEndSize;
    const size_t first = last > kMost16 ? last - kMost16 : 0;
    for (size_t at = last + 1; at-- > first;) {
      if (Fields(file.subspan(at)).u32() != kEnd) continue;
      Fields comment(file.subspan(at + kEndSize - 2));
      if (at + kEndSize + comment.u16() == file.size()) return at;
    }
  }
  fail(ErrorCode::CorruptFile, "zip directory", "this is no zip archive, or a truncated one: it has no end record");
}

Directory find_directory(std::span<const std::byte> file) {
  const size_t end = find_end(file);
  Fields fields(file.subspan(end + 4));
  const uint16_t disk = fields.u16(), first_disk = fields.u16();
  fields.u16();
  Directory directory{};
  directory.members = fields.u16();
  directory.size = fields.u32();
  directory.offset = fields.u32();
  const bool has_locator = end >= kLocatorSize && Fields(file.subspan(end - kLocatorSize)).u32() == kEnd64Locator;
  if (has_locator) {
    Fields locator(file.subspan(end - kLocatorSize + 8));
    Fields end64(from(file, locator.u64()));
    if (end64.u32() != kEnd64) corrupt("the zip64 end record is not where its locator says");
    end64.take(28);
    directory.members = end64.u64();
    directory.size = end64.u64();
    directory.offset = end64.u64();
  } else if (disk != 0 || first_disk != 0) {
    fail(ErrorCode::Unsupported, "zip directory", "an archive in several parts");
  }
  return directory;
}

/// The real numbers of a zip64 member stand in its extra field, those that were all ones, in this order.
void read_zip64(std::span<const std::byte> extra, uint64_t& size, uint64_t& packed, uint64_t& offset) {
  Fields fields(extra);
  while (fields.left() >= 4) {
    const uint16_t id = fields.u16();
    Fields body(fields.take(fields.u16()));
    if (id != kZip64Extra) continue;
    for (uint64_t* number : {&size, &packed, &offset}) {
      if (*number == kMost32) *number = body.u64();
    }
    return;
  }
}

std::span<const std::byte> member_data(std::span<const std::byte> file, uint64_t offset, uint64_t packed) {
  Fields local(from(file, offset));
  if (local.u32() != kLocalHeader) corrupt("a member does not begin with a local header");
  local.take(22);
  const uint16_t name = local.u16(), extra = local.u16();
  local.take(uint64_t{name} + extra);
  return local.take(packed);
}

ZipMember read_member(Fields& fields, std::span<const std::byte> file) {
  if (fields.u32() != kCentralHeader) corrupt("a directory record does not begin as one");
  fields.take(4);
  const uint16_t flags = fields.u16(), method = fields.u16();
  fields.take(4);
  ZipMember member;
  member.crc = fields.u32();
  uint64_t packed = fields.u32();
  member.size = fields.u32();
  const uint16_t name_size = fields.u16(), extra_size = fields.u16(), comment_size = fields.u16();
  fields.take(8);
  uint64_t offset = fields.u32();
  const auto name = fields.take(name_size);
  member.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  read_zip64(fields.take(extra_size), member.size, packed, offset);
  fields.take(comment_size);
  if ((flags & 1) != 0) fail(ErrorCode::Unsupported, "member '" + member.name + "'", "is encrypted");
  if (method != kStored && method != kDeflated) {
    fail(ErrorCode::Unsupported, "member '" + member.name + "'",
         "compression method {}; stored and deflated are accepted", method);
  }
  member.deflated = method == kDeflated;
  member.data = member_data(file, offset, packed);
  const bool possible = member.deflated ? member.size / kMostRatio <= packed : member.size == packed;
  if (!possible) {
    fail(ErrorCode::CorruptFile, "member '" + member.name + "'", "cannot be {} bytes unpacked from {}", member.size,
         packed);
  }
  return member;
}

uint32_t crc_of(std::span<const std::byte> bytes, uint32_t start = 0) {
  if (bytes.empty()) return start;  // zlib takes a null pointer for a new start
  return static_cast<uint32_t>(::crc32_z(start, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

void check_crc(const ZipMember& member, std::span<const std::byte> bytes) {
  if (crc_of(bytes) != member.crc) {
    fail(ErrorCode::CorruptFile, "member '" + member.name + "'", "its data is damaged: the checksum does not fit");
  }
}

/// Feeds zlib, whose counts have 32 bits, in pieces.
uInt piece_of(size_t left) { return static_cast<uInt>(std::min<size_t>(left, std::numeric_limits<uInt>::max())); }

Bytef* zlib_bytes(const std::byte* bytes) { return const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes)); }

std::string deflate_all(std::string_view head, std::span<const std::byte> data) {
  z_stream stream{};
  // Negative: no zlib header, as zip wants it.
  if (::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
    fail(ErrorCode::Internal, "zlib", "cannot start to deflate");
  }
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &::deflateEnd);
  std::string packed;
  char buffer[1 << 16];
  const auto feed = [&](std::span<const std::byte> bytes, bool last) {
    do {
      stream.next_in = zlib_bytes(bytes.data());
      stream.avail_in = piece_of(bytes.size());
      bytes = bytes.subspan(stream.avail_in);
      do {
        stream.next_out = reinterpret_cast<Bytef*>(buffer);
        stream.avail_out = sizeof buffer;
        ::deflate(&stream, last && bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
        packed.append(buffer, sizeof buffer - stream.avail_out);
      } while (stream.avail_out == 0);
    } while (!bytes.empty());
  };
  feed(std::as_bytes(std::span(head)), false);
  feed(data, true);
  return packed;
}

/// `count` is at most 8.
void put(std::string& out, uint64_t value, size_t count) {
  for (size_t i = 0; i < count; ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

}  // namespace

std::vector<ZipMember> list_zip(std::span<const std::byte> file) {
  const Directory directory = find_directory(file);
  Fields fields(Fields(from(file, directory.offset)).take(directory.size));
  if (directory.members > directory.size / kCentralSize) corrupt("its directory is too small for its members");
  std::vector<ZipMember> members;
  members.reserve(directory.members);
  uint64_t packed = 0;
  for (uint64_t i = 0; i < directory.members; ++i) {
    members.push_back(read_member(fields, file));
    packed += members.back().data.size();
    if (packed > file.size()) corrupt("its members overlap");
  }
  return members;
}

std::shared_ptr<std::byte[]> inflate_member(const ZipMember& member) {
  const std::string where = "member '" + member.name + "'";
  auto out = std::make_shared_for_overwrite<std::byte[]>(member.size);
  z_stream stream{};
  if (::inflateInit2(&stream, -MAX_WBITS) != Z_OK) fail(ErrorCode::Internal, "zlib", "cannot start to inflate");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, &::inflateEnd);
  std::span<const std::byte> in = member.data;
  std::span<std::byte> left(out.get(), member.size);
  int state = Z_OK;
  while (state == Z_OK) {
    const uInt in_piece = piece_of(in.size()), out_piece = piece_of(left.size());
    stream.next_in = zlib_bytes(in.data());
    stream.avail_in = in_piece;
    stream.next_out = reinterpret_cast<Bytef*>(left.data());
    stream.avail_out = out_piece;
    state = ::inflate(&stream, Z_NO_FLUSH);
    in = in.subspan(in_piece - stream.avail_in);
    left = left.subspan(out_piece - stream.avail_out);
  }
  if (state != Z_STREAM_END || !left.empty()) fail(ErrorCode::CorruptFile, where, "its deflated data is damaged");
  check_crc(member, {out.get(), member.size});
  return out;
}

void check_stored_member(const ZipMember& member) { check_crc(member, member.data); }

void ZipWriter::write(std::string_view bytes) {
  file_.write(bytes);
  at_ += bytes.size();
}

void ZipWriter::add(const std::string& name, std::string_view head, std::span<const std::byte> data, bool deflate) {
  const std::string packed = deflate ? deflate_all(head, data) : std::string();
  Entry entry{name, deflate, crc_of(data, crc_of(std::as_bytes(std::span(head)))), 0, head.size() + data.size(), at_};
  entry.packed = deflate ? packed.size() : entry.size;
  const bool zip64 = std::max(entry.packed, entry.size) >= zip64_from_;

  std::string extra;
  if (zip64) {
    put(extra, kZip64Extra, 2);
    put(extra, 16, 2);
    put(extra, entry.size, 8);
    put(extra, entry.packed, 8);
  }
  if (!deflate) {
    const uint64_t start = at_ + kLocalSize + name.size() + extra.size() + 4;
    const uint64_t padding = (kAlignment - start % kAlignment) % kAlignment;
    put(extra, kAlignExtra, 2);
    put(extra, padding, 2);
    extra.append(padding, '\0');
  }
  std::string local;
  put(local, kLocalHeader, 4);
  put(local, zip64 ? 45 : 20, 2);
  put(local, 0x800, 2);  // the name is UTF-8
  put(local, deflate ? kDeflated : kStored, 2);
  put(local, 0, 2);
  put(local, 0x21, 2);  // 1980-01-01: the same input gives the same file
  put(local, entry.crc, 4);
  put(local, zip64 ? kMost32 : entry.packed, 4);
  put(local, zip64 ? kMost32 : entry.size, 4);
  put(local, name.size(), 2);
  put(local, extra.size(), 2);
  write(local + name + extra);
  if (deflate) {
    write(packed);
  } else {
    write(head);
    file_.write(data);
    at_ += data.size();
  }
  entries_.push_back(std::move(entry));
}

void ZipWriter::finish() {
  const uint64_t start = at_;
  for (const Entry& entry : entries_) {
    const bool zip64 = std::max({entry.packed, entry.size, entry.offset}) >= zip64_from_;
    std::string record;
    put(record, kCentralHeader, 4);
    put(record, zip64 ? 45 : 20, 2);
    put(record, zip64 ? 45 : 20, 2);
    put(record, 0x800, 2);
    put(record, entry.deflated ? kDeflated : kStored, 2);
    put(record, 0, 2);
    put(record, 0x21, 2);
    put(record, entry.crc, 4);
    put(record, zip64 ? kMost32 : entry.packed, 4);
    put(record, zip64 ? kMost32 : entry.size, 4);
    put(record, entry.name.size(), 2);
    put(record, zip64 ? 28 : 0, 2);
    record.append(2 + 2 + 2 + 4, '\0');
    put(record, zip64 ? kMost32 : entry.offset, 4);
    record += entry.name;
    if (zip64) {
      put(record, kZip64Extra, 2);
      put(record, 24, 2);
      put(record, entry.size, 8);
      put(record, entry.packed, 8);
      put(record, entry.offset, 8);
    }
    write(record);
  }
  const uint64_t size = at_ - start, end64 = at_;
  const bool zip64 =
      std::max(start, size) >= zip64_from_ || entries_.size() >= std::min<uint64_t>(zip64_from_, kMost16);
  std::string end;
  if (zip64) {
    put(end, kEnd64, 4);
    put(end, kEnd64Size - 12, 8);
    put(end, 45, 2);
    put(end, 45, 2);
    put(end, 0, 4 + 4);
    put(end, entries_.size(), 8);
    put(end, entries_.size(), 8);
    put(end, size, 8);
    put(end, start, 8);
    put(end, kEnd64Locator, 4);
    put(end, 0, 4);
    put(end, end64, 8);
    put(end, 1, 4);
  }
  put(end, kEnd, 4);
  put(end, 0, 2 + 2);
  put(end, zip64 ? kMost16 : entries_.size(), 2);
  put(end, zip64 ? kMost16 : entries_.size(), 2);
  put(end, zip64 ? kMost32 : size, 4);
  put(end, zip64 ? kMost32 : start, 4);
  put(end, 0, 2);
  write(end);
}

}  // namespace kaon
