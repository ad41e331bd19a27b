// What torch.save writes. Since PyTorch 1.6 a zip archive: <name>/data.pkl describes the values, <name>/data/<key>
// holds the elements of each storage. Before that a row of pickles (magic number, version, system, values, keys) and
// then, by sorted key, each storage's size in eight bytes and its elements.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/pickle.h"
#include "data/sources.h"
#include "io/zip/zip.h"

namespace kaon {

namespace {

/// PROTO 2, then the ten-byte integer 0x1950A86A20F9469CFC6C.
constexpr std::array<uint8_t, 15> kLegacyMagic{0x80, 2,    0x8A, 10,   0x6C, 0xFC, 0x9C, 0x46,
                                               0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19, '.'};
/// A view may repeat its storage (expand()), which a few bytes could use to claim any size.
constexpr int64_t kMostRepeats = 1024;

struct StorageBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};
using Storages = std::map<std::string, StorageBytes>;

[[noreturn]] void outside(const std::string& name, const std::string& where) {
  fail(ErrorCode::CorruptFile, where, "tensor '{}' does not lie inside its storage", name);
}

/// Throws unless every element of the view lies in its storage.
void check_view(const PickledTensor& view, size_t storage_bytes, const std::string& name, const std::string& where) {
  const int64_t held = static_cast<int64_t>(storage_bytes) / (bits_of(view.type) / 8);
  const int64_t count = element_count(view.shape);
  if (view.offset < 0 || view.offset > held) outside(name, where);
  if (count == 0) return;
  int64_t last = view.offset;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    const int64_t steps = view.shape[i] - 1;
    if (view.strides[i] < 0 || (steps > 0 && view.strides[i] > (held - last) / steps)) outside(name, where);
    last += steps * view.strides[i];
  }
  if (last >= held) outside(name, where);
  if (count / kMostRepeats > held) {
    fail(ErrorCode::Unsupported, where, "tensor '{}' repeats its storage more than {} times; save it contiguous", name,
         kMostRepeats);
  }
}

bool is_contiguous(const PickledTensor& view) {
  int64_t expected = 1;
  for (size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

/// Copies the elements in C order.
Tensor gather(const PickledTensor& view, const std::byte* storage, size_t width) {
  const int64_t count = element_count(view.shape);
  const auto out = std::make_shared_for_overwrite<std::byte[]>(static_cast<size_t>(count) * width);
  std::vector<int64_t> index(view.shape.size());
  int64_t at = view.offset;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(out.get() + static_cast<size_t>(i) * width, storage + static_cast<size_t>(at) * width, width);
    for (size_t axis = index.size(); axis-- > 0;) {
      at += view.strides[axis];
      if (++index[axis] < view.shape[axis]) break;
      at -= view.strides[axis] * view.shape[axis];
      index[axis] = 0;
    }
  }
  return {view.type, view.shape, out, out.get()};
}

NamedTensors make_tensors(const PickledTensors& pickled, const Storages& storages, const std::string& where) {
  NamedTensors out;
  for (const auto& [name, view] : pickled.tensors) {
    const auto storage = storages.find(view.storage);
    if (storage == storages.end()) {
      fail(ErrorCode::CorruptFile, where, "the storage '{}' of tensor '{}' is missing", view.storage, name);
    }
    const auto& [owner, bytes] = storage->second;
    check_view(view, bytes.size(), name, where);
    const auto width = static_cast<size_t>(bits_of(view.type) / 8);
    const bool aligned = reinterpret_cast<uintptr_t>(bytes.data()) % width == 0;
    if (aligned && is_contiguous(view)) {
      out.emplace_back(name,
                       Tensor(view.type, view.shape, owner, bytes.data() + static_cast<size_t>(view.offset) * width));
    } else {
      out.emplace_back(name, gather(view, bytes.data(), width));
    }
  }
  return out;
}

StorageBytes unpack(const ZipMember& member, const std::shared_ptr<const MappedFile>& file) {
  if (member.deflated) {
    const std::shared_ptr<std::byte[]> bytes = inflate_member(member);
    return {bytes, {bytes.get(), member.size}};
  }
  check_stored_member(member);
  return {file, member.data};
}

NamedTensors read_archive(const std::shared_ptr<const MappedFile>& file, const std::string& where) {
  const std::vector<ZipMember> members = list_zip(file->bytes());
  const auto pickle = std::ranges::find_if(members, [](const ZipMember& m) { return m.name.ends_with("/data.pkl"); });
  if (pickle == members.end())
    fail(ErrorCode::CorruptFile, where, "a zip archive without data.pkl is none of torch.save");
  const std::string folder = pickle->name.substr(0, pickle->name.size() - std::string("data.pkl").size());
  const StorageBytes text = unpack(*pickle, file);
  std::span<const std::byte> bytes = text.bytes;
  const PickledTensors pickled = read_pickle(bytes, where);
  Storages storages;
  for (const ZipMember& member : members) {
    if (member.name == folder + "byteorder" && member.size == 3) {  // "big", not "little"
      fail(ErrorCode::Unsupported, where, "was written on a big-endian machine");
    }
    const bool wanted = std::ranges::any_of(
        pickled.storages, [&](const auto& storage) { return member.name == folder + "data/" + storage.first; });
    if (wanted) storages.emplace(member.name.substr((folder + "data/").size()), unpack(member, file));
  }
  return make_tensors(pickled, storages, where);
}

NamedTensors read_legacy(const std::shared_ptr<const MappedFile>& file, const std::string& where) {
  std::span<const std::byte> left = file->bytes();
  for (int i = 0; i < 3; ++i) skip_pickle(left, where);  // magic number, version, system
  const PickledTensors pickled = read_pickle(left, where);
  skip_pickle(left, where);  // the keys, which come sorted
  Storages storages;
  for (const auto& [key, size] : pickled.storages) {
    constexpr size_t kSizeBytes = 8;
    if (left.size() < kSizeBytes || left.size() - kSizeBytes < static_cast<size_t>(size)) {
      fail(ErrorCode::CorruptFile, where, "the file is truncated");
    }
    storages.emplace(key, StorageBytes{file, left.subspan(kSizeBytes, static_cast<size_t>(size))});
    left = left.subspan(kSizeBytes + static_cast<size_t>(size));
  }
  return make_tensors(pickled, storages, where);
}

}  // namespace

NamedTensors read_torch_file(const std::filesystem::path& path) {
  const std::string where = path.string();
  const auto file = MappedFile::open(path);
  const bool legacy = file->bytes().size() >= kLegacyMagic.size() &&
                      std::memcmp(file->bytes().data(), kLegacyMagic.data(), kLegacyMagic.size()) == 0;
  try {
    return legacy ? read_legacy(file, where) : read_archive(file, where);
  } catch (const Error& error) {
    if (error.where() == where) throw;
    throw Error(error.code(), error.what(), where);  // the archive's members know no file
  }
}

}  // namespace kaon
