#include "io/npy/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <ranges>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "io/npy/npy_header.h"
#include "io/zip/zip.h"

namespace kaon {

static_assert(std::endian::native == std::endian::little, "written arrays are little-endian");

namespace fs = std::filesystem;

namespace {

size_t element_bytes(DType type) { return static_cast<size_t>(bits_of(type) / 8); }

/// Numbers of a complex element are swapped one by one.
size_t number_bytes(DType type) {
  const bool complex = type == DType::Complex64 || type == DType::Complex128;
  return element_bytes(type) / (complex ? 2 : 1);
}

void swap_bytes(std::span<std::byte> bytes, size_t width) {
  for (size_t at = 0; at + width <= bytes.size(); at += width) {
    std::reverse(bytes.begin() + static_cast<ptrdiff_t>(at), bytes.begin() + static_cast<ptrdiff_t>(at + width));
  }
}

/// Copies an array whose first dimension runs fastest into C order.
void from_fortran(std::span<const std::byte> in, std::byte* out, const Shape& shape, size_t width) {
  struct Axis {
    size_t size, stride, index;
  };
  std::vector<Axis> axes;
  size_t stride = width;
  for (const int64_t dim : shape) {
    axes.push_back({static_cast<size_t>(dim), stride, 0});
    stride *= static_cast<size_t>(dim);
  }
  size_t source = 0;
  for (size_t at = 0; at < in.size(); at += width) {
    std::memcpy(out + at, in.data() + source, width);
    for (Axis& axis : axes | std::views::reverse) {
      source += axis.stride;
      if (++axis.index < axis.size) break;
      source -= axis.index * axis.stride;
      axis.index = 0;
    }
  }
}

bool all_bools(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; });
}

/// `owner` keeps `bytes` alive; nullptr means that they must be copied.
Tensor parse_npy(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner) {
  NpyHeader header = parse_npy_header(bytes);
  int64_t count = 0;
  try {
    count = element_count(header.shape);
  } catch (const Error& error) {
    fail(ErrorCode::CorruptFile, "header", "shape {}: {}", error.where(), error.message());
  }
  const auto data = bytes.subspan(header.data_offset);
  const int64_t wanted = stored_bytes(header.type, count);
  if (std::ssize(data) != wanted) {
    fail(ErrorCode::CorruptFile, "data", "{} {} takes {} bytes, but {} follow the header", name_of(header.type),
         to_string(header.shape), wanted, data.size());
  }
  const size_t width = number_bytes(header.type);
  const bool transpose = header.fortran_order && header.shape.size() > 1;
  const bool swap = header.big_endian && width > 1;
  const bool clean = header.type != DType::Bool || all_bools(data);
  const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % width == 0;
  if (owner != nullptr && aligned && clean && !transpose && !swap) {
    return {header.type, std::move(header.shape), owner, data.data()};
  }
  const auto copy = std::make_shared_for_overwrite<std::byte[]>(data.size());
  if (transpose)
    from_fortran(data, copy.get(), header.shape, element_bytes(header.type));
  else if (!data.empty())
    std::memcpy(copy.get(), data.data(), data.size());
  const std::span<std::byte> copied(copy.get(), data.size());
  if (swap) swap_bytes(copied, width);
  if (!clean)
    std::transform(copied.begin(), copied.end(), copied.begin(), [](std::byte b) { return std::min(b, std::byte{1}); });
  return {header.type, std::move(header.shape), copy, copy.get()};
}

/// Adds `prefix` to what an error of `body` names.
template <typename Body>
auto naming(const std::string& prefix, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.where().starts_with(prefix)) throw;
    throw Error(error.code(), error.message(), prefix + (error.where().empty() ? "" : ": ") + error.where());
  }
}

NamedTensors parse_npz(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner) {
  NamedTensors tensors;
  for (const ZipMember& member : list_zip(bytes)) {
    constexpr std::string_view kSuffix = ".npy";
    const std::string where = "member '" + member.name + "'";
    if (!member.name.ends_with(kSuffix)) {
      fail(ErrorCode::Unsupported, where, "is no .npy array; a .npz holds nothing else");
    }
    naming(where, [&] {
      if (!member.deflated) check_stored_member(member);
      const auto unpacked = member.deflated ? inflate_member(member) : nullptr;
      Tensor tensor =
          member.deflated ? parse_npy({unpacked.get(), member.size}, unpacked) : parse_npy(member.data, owner);
      tensors.emplace_back(member.name.substr(0, member.name.size() - kSuffix.size()), std::move(tensor));
    });
  }
  return tensors;
}

}  // namespace

Tensor read_npy(const fs::path& path) {
  return naming(path.string(), [&] {
    const auto file = MappedFile::open(path);
    return parse_npy(file->bytes(), file);
  });
}

Tensor read_npy(std::span<const std::byte> bytes) { return parse_npy(bytes, nullptr); }

void write_npy(const Tensor& tensor, const fs::path& path) {
  const std::string header = make_npy_header(tensor.type(), tensor.shape());
  AtomicFile file(path);
  file.write(header);
  file.write(tensor.bytes());
  file.commit();
}

NamedTensors read_npz(const fs::path& path) {
  return naming(path.string(), [&] {
    const auto file = MappedFile::open(path);
    return parse_npz(file->bytes(), file);
  });
}

NamedTensors read_npz(std::span<const std::byte> bytes) { return parse_npz(bytes, nullptr); }

void write_npz(const NamedTensors& tensors, const fs::path& path, NpzCompression compression) {
  AtomicFile file(path);
  ZipWriter zip(file);
  for (const auto& [name, tensor] : tensors) {
    const std::string member = name + ".npy";
    if (member.size() > 0xFFFF) fail(ErrorCode::InvalidInput, path.string(), "an array name of {} bytes", name.size());
    zip.add(member, make_npy_header(tensor.type(), tensor.shape()), tensor.bytes(),
            compression == NpzCompression::Deflate);
  }
  zip.finish();
  file.commit();
}

}  // namespace kaon
