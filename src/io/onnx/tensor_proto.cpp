#include "io/onnx/tensor_proto.h"

#include <onnx/onnx_pb.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/mapped_file.h"

namespace kaon {

static_assert(std::endian::native == std::endian::little, "raw tensor data is little-endian");

namespace fs = std::filesystem;

namespace {

bool is_inside(const fs::path& path, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

uint64_t parse_number(const std::string& key, const std::string& text, const std::string& where) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::CorruptFile, where, "external data: {} is '{}', which is no byte count", key, text);
  }
  return value;
}

/// A bool must be 0 or 1 in memory; anything else that a file holds counts as true.
Tensor with_clean_bools(Tensor tensor) {
  if (tensor.type() != DType::Bool) return tensor;
  const auto bytes = tensor.bytes();
  if (std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b <= std::byte{1}; })) return tensor;
  std::vector<std::byte> clean(bytes.begin(), bytes.end());
  for (std::byte& b : clean) b = b == std::byte{0} ? b : std::byte{1};
  return Tensor::copy_bytes(DType::Bool, tensor.shape(), clean);
}

bool is_aligned(const std::byte* data, DType type) {
  const auto size = static_cast<uintptr_t>(std::clamp(bits_of(type) / 8, 1, 8));
  return reinterpret_cast<uintptr_t>(data) % size == 0;
}

Tensor map_external(const onnx::TensorProto& proto, DType type, Shape shape, ExternalFiles& files,
                    const std::string& where) {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = parse_number("offset", entry.value(), where);
    if (entry.key() == "length") length = parse_number("length", entry.value(), where);
  }
  const auto wanted = static_cast<uint64_t>(stored_bytes(type, element_count(shape)));
  if (type == DType::String) fail(ErrorCode::CorruptFile, where, "strings cannot be external data");
  if (length && *length != wanted) {
    fail(ErrorCode::CorruptFile, where, "{} {} takes {} bytes, but its external data in '{}' has length {}",
         name_of(type), to_string(shape), wanted, location, *length);
  }
  const auto file = files.open(location, where);
  const auto bytes = file->bytes();
  if (offset > bytes.size() || wanted > bytes.size() - offset) {
    fail(ErrorCode::CorruptFile, where, "needs {} bytes at offset {} of external data '{}', which has {} bytes", wanted,
         offset, location, bytes.size());
  }
  const auto data = bytes.subspan(offset, wanted);
  if (!is_aligned(data.data(), type)) return with_clean_bools(Tensor::copy_bytes(type, std::move(shape), data));
  return with_clean_bools({type, std::move(shape), file, data.data()});
}

/// Takes over a repeated field whose elements are laid out as the tensor's.
template <typename T>
Tensor adopt(DType type, Shape shape, google::protobuf::RepeatedField<T>& field) {
  const auto owner = std::make_shared<google::protobuf::RepeatedField<T>>();
  owner->Swap(&field);
  return {type, std::move(shape), owner, reinterpret_cast<const std::byte*>(owner->data())};
}

template <typename T, typename From>
Tensor narrow(DType type, Shape shape, const google::protobuf::RepeatedField<From>& field, const std::string& where) {
  const auto owner = std::make_shared_for_overwrite<T[]>(static_cast<size_t>(field.size()));
  constexpr int kBits = 8 * sizeof(T);
  for (int i = 0; i < field.size(); ++i) {
    const From value = field[i];
    // Signed and unsigned writings of the same bits are both in use.
    bool fits = value < (From{1} << kBits);
    if constexpr (std::is_signed_v<From>) fits = fits && value >= -(From{1} << (kBits - 1));
    if (!fits) fail(ErrorCode::CorruptFile, where, "element {} is {}, which is no {}", i, value, name_of(type));
    owner[i] = static_cast<T>(value);
  }
  return with_clean_bools({type, std::move(shape), owner, reinterpret_cast<const std::byte*>(owner.get())});
}

void require_count(int64_t found, int64_t wanted, const char* field, DType type, const Shape& shape,
                   const std::string& where) {
  if (found == wanted) return;
  fail(ErrorCode::CorruptFile, where, "{} {} takes {} entries of {}, but {} are there", name_of(type), to_string(shape),
       wanted, field, found);
}

Tensor take_typed(onnx::TensorProto& proto, DType type, Shape shape, const std::string& where) {
  const int64_t count = element_count(shape);
  switch (type) {
    case DType::Float32:
    case DType::Complex64:
      require_count(proto.float_data_size(), type == DType::Float32 ? count : 2 * count, "float_data", type, shape,
                    where);
      return adopt(type, std::move(shape), *proto.mutable_float_data());
    case DType::Float64:
    case DType::Complex128:
      require_count(proto.double_data_size(), type == DType::Float64 ? count : 2 * count, "double_data", type, shape,
                    where);
      return adopt(type, std::move(shape), *proto.mutable_double_data());
    case DType::Int64:
      require_count(proto.int64_data_size(), count, "int64_data", type, shape, where);
      return adopt(type, std::move(shape), *proto.mutable_int64_data());
    case DType::UInt64:
      require_count(proto.uint64_data_size(), count, "uint64_data", type, shape, where);
      return adopt(type, std::move(shape), *proto.mutable_uint64_data());
    case DType::UInt32:
      require_count(proto.uint64_data_size(), count, "uint64_data", type, shape, where);
      return narrow<uint32_t>(type, std::move(shape), proto.uint64_data(), where);
    case DType::Int32:
      require_count(proto.int32_data_size(), count, "int32_data", type, shape, where);
      return adopt(type, std::move(shape), *proto.mutable_int32_data());
    default: break;
  }
  const bool wide = bits_of(type) == 16;
  // Sub-byte types hold one packed byte in each entry.
  require_count(proto.int32_data_size(), wide ? count : stored_bytes(type, count), "int32_data", type, shape, where);
  return wide ? narrow<uint16_t>(type, std::move(shape), proto.int32_data(), where)
              : narrow<uint8_t>(type, std::move(shape), proto.int32_data(), where);
}

Tensor take_strings(onnx::TensorProto& proto, Shape shape, const std::string& where) {
  require_count(proto.string_data_size(), element_count(shape), "string_data", DType::String, shape, where);
  std::vector<std::string> values;
  values.reserve(static_cast<size_t>(proto.string_data_size()));
  for (std::string& value : *proto.mutable_string_data()) values.push_back(std::move(value));
  return Tensor::of_strings(std::move(shape), std::move(values));
}

Tensor take_raw(onnx::TensorProto& proto, DType type, Shape shape, const std::string& where) {
  const int64_t wanted = stored_bytes(type, element_count(shape));
  if (std::ssize(proto.raw_data()) != wanted) {
    fail(ErrorCode::CorruptFile, where, "{} {} takes {} bytes, but raw_data has {}", name_of(type), to_string(shape),
         wanted, proto.raw_data().size());
  }
  const auto owner = std::make_shared<const std::string>(std::move(*proto.mutable_raw_data()));
  return with_clean_bools({type, std::move(shape), owner, reinterpret_cast<const std::byte*>(owner->data())});
}

int64_t typed_entries(const onnx::TensorProto& proto) {
  return int64_t{proto.float_data_size()} + proto.int32_data_size() + proto.string_data_size() +
         proto.int64_data_size() + proto.double_data_size() + proto.uint64_data_size();
}

Tensor take_data(onnx::TensorProto& proto, DType type, Shape shape, ExternalFiles& files, const std::string& where) {
  if (proto.data_location() == onnx::TensorProto::EXTERNAL)
    return map_external(proto, type, std::move(shape), files, where);
  if (!proto.raw_data().empty() && typed_entries(proto) > 0) {
    fail(ErrorCode::CorruptFile, where, "has both raw_data and typed data; one of them is accepted");
  }
  if (type == DType::String) {
    if (!proto.raw_data().empty()) fail(ErrorCode::CorruptFile, where, "strings cannot be raw_data");
    return take_strings(proto, std::move(shape), where);
  }
  if (typed_entries(proto) > 0) return take_typed(proto, type, std::move(shape), where);
  return take_raw(proto, type, std::move(shape), where);
}

}  // namespace

ExternalFiles::ExternalFiles(const fs::path& folder, const fs::path& model)
    : folder_(folder.empty() ? fs::path(".") : folder) {
  std::error_code error;
  roots_.push_back(fs::canonical(folder_, error));
  if (!model.empty() && !error) roots_.push_back(fs::canonical(model, error).parent_path());
  if (error) fail(ErrorCode::Io, folder_.string(), "cannot open: {}", error.message());
}

std::shared_ptr<const MappedFile> ExternalFiles::open(const std::string& location, const std::string& where) {
  if (const auto it = files_.find(location); it != files_.end()) return it->second;
  if (location.empty()) fail(ErrorCode::CorruptFile, where, "external data without a location");
  if (roots_.empty()) {
    fail(ErrorCode::InvalidInput, where, "has external data in '{}', but there is no folder to look in", location);
  }
  const fs::path relative(location);
  const bool climbs = std::find(relative.begin(), relative.end(), "..") != relative.end();
  if (relative.is_absolute() || climbs || location.find('\0') != std::string::npos) {
    fail(ErrorCode::InvalidInput, where,
         "external data in '{}' lies outside the model's folder; a relative path inside it is accepted", location);
  }
  std::error_code error;
  const fs::path real = fs::canonical(folder_ / relative, error);
  if (error) {
    fail(ErrorCode::Io, where, "external data '{}' cannot be opened in '{}': {}", location, folder_.string(),
         error.message());
  }
  if (std::none_of(roots_.begin(), roots_.end(), [&](const fs::path& root) { return is_inside(real, root); })) {
    fail(ErrorCode::InvalidInput, where, "external data '{}' leads through a link to '{}', outside the model's folder",
         location, real.string());
  }
  return files_.emplace(location, MappedFile::open(real)).first->second;
}

int64_t ExternalFiles::bytes() const {
  int64_t total = 0;
  for (const auto& [location, file] : files_) total += std::ssize(file->bytes());
  return total;
}

Tensor take_tensor(onnx::TensorProto& proto, ExternalFiles& files, const std::string& where) {
  const auto type = static_cast<DType>(proto.data_type());
  if (!is_known(type)) {
    fail(ErrorCode::Unsupported, where, "data type {} is none that Kaon knows; 1 to 26 are accepted",
         proto.data_type());
  }
  if (proto.has_segment()) fail(ErrorCode::Unsupported, where, "is cut into segments, which no ONNX version uses");
  Shape shape(proto.dims().begin(), proto.dims().end());
  try {
    element_count(shape);
  } catch (const Error& error) {
    fail(ErrorCode::CorruptFile, where, "shape {}: {}", error.where(), error.message());
  }
  Tensor tensor = take_data(proto, type, std::move(shape), files, where);
  proto.clear_dims();
  proto.clear_data_type();
  proto.clear_raw_data();
  proto.clear_float_data();
  proto.clear_int32_data();
  proto.clear_string_data();
  proto.clear_int64_data();
  proto.clear_double_data();
  proto.clear_uint64_data();
  if (proto.data_location() == onnx::TensorProto::EXTERNAL) {
    proto.clear_external_data();
    proto.clear_data_location();
  }
  return tensor;
}

void put_header(const Tensor& tensor, onnx::TensorProto& proto) {
  proto.mutable_dims()->Assign(tensor.shape().begin(), tensor.shape().end());
  proto.set_data_type(static_cast<int32_t>(tensor.type()));
  if (tensor.type() != DType::String) return;
  for (const std::string& value : tensor.strings()) proto.add_string_data(value);
}

void put_tensor(const Tensor& tensor, onnx::TensorProto& proto) {
  put_header(tensor, proto);
  if (tensor.type() == DType::String) return;
  proto.set_raw_data(tensor.bytes().data(), tensor.bytes().size());
}

}  // namespace kaon
