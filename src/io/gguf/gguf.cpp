// The layout: "GGUF", u32 version, i64 tensors, i64 keys; the keys (string, u32 type, value); the tensors' descriptions
// (string name, u32 rank, i64 dims innermost first, u32 type, u64 offset); then, aligned, the data that the offsets
// count from. A string is a u64 length and its bytes; an array a u32 type, a u64 count and its elements.
#include "io/gguf/gguf.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/parallel.h"

namespace kaon {

static_assert(std::endian::native == std::endian::little, "the data of the format is little-endian");

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMostAlignment = 1 << 20;
constexpr uint32_t kMostRank = 4;
constexpr uint32_t kOldestVersion = 2, kNewestVersion = 3;

enum class Kind : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };

/// For messages: a name from a file may be of any length and hold anything.
std::string in_quotes(std::string_view name) {
  constexpr size_t kLongest = 80;
  std::string shown(name.substr(0, kLongest));
  std::ranges::replace_if(
      shown, [](char c) { return static_cast<unsigned char>(c) < ' '; }, '?');
  return "'" + shown + (name.size() > kLongest ? "…'" : "'");
}

const GgufType& type_of(uint32_t id, const std::string& where) {
  const auto& types = gguf_types();
  const auto row = std::ranges::find(types, id, &GgufType::id);
  if (row != types.end()) return *row;
  std::vector<std::string_view> names;
  for (const GgufType& type : types) names.push_back(type.name);
  fail(ErrorCode::Unsupported, where, "the tensor type {} is not known; {} are", id, fmt::join(names, ", "));
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes) {}

  GgufFile parse() {
    where_ = "header";
    if (bytes_.size() < kMagic.size() || std::memcmp(bytes_.data(), kMagic.data(), kMagic.size()) != 0) {
      fail(ErrorCode::CorruptFile, where_, "no GGUF file: it does not begin with 'GGUF'");
    }
    at_ = kMagic.size();
    const auto version = number<uint32_t>();
    if (version < kOldestVersion || version > kNewestVersion) {
      fail(ErrorCode::Unsupported, where_, "version {}; {} and {} little-endian can be read", version, kOldestVersion,
           kNewestVersion);
    }
    file_.version_ = version;
    // A key has at least a length, a type and one byte; a tensor a length, a rank, a type and an offset.
    const size_t tensors = count(8 + 4 + 4 + 8), keys = count(8 + 4 + 1);
    for (size_t i = 0; i < keys; ++i) read_key(i);
    std::vector<uint64_t> offsets;
    for (size_t i = 0; i < tensors; ++i) offsets.push_back(read_tensor(i));
    place(offsets);
    return std::move(file_);
  }

 private:
  size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(size_t length) {
    if (length > left()) {
      fail(ErrorCode::CorruptFile, where_, "truncated: {} bytes are needed at byte {} of {}", length, at_,
           bytes_.size());
    }
    const auto part = bytes_.subspan(at_, length);
    at_ += length;
    return part;
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  /// A number of things that take at least `least` bytes each.
  size_t count(size_t least) {
    const auto wanted = number<uint64_t>();
    if (wanted > left() / least) {
      fail(ErrorCode::CorruptFile, where_, "truncated: {} entries are announced at byte {} of {}", wanted, at_,
           bytes_.size());
    }
    return static_cast<size_t>(wanted);
  }

  std::string text() {
    const auto part = take(count(1));
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  int64_t integer(Kind kind) {
    switch (kind) {
      case Kind::U8: return number<uint8_t>();
      case Kind::I8: return number<int8_t>();
      case Kind::U16: return number<uint16_t>();
      case Kind::I16: return number<int16_t>();
      case Kind::U32: return number<uint32_t>();
      case Kind::I32: return number<int32_t>();
      case Kind::I64: return number<int64_t>();
      case Kind::Bool: return flag() ? 1 : 0;
      default: break;
    }
    const auto value = number<uint64_t>();
    if (value > static_cast<uint64_t>(INT64_MAX)) fail(ErrorCode::Unsupported, where_, "the number {}", value);
    return static_cast<int64_t>(value);
  }

  bool flag() {
    const auto value = number<uint8_t>();
    if (value > 1) fail(ErrorCode::CorruptFile, where_, "a flag that is {}, neither 0 nor 1", value);
    return value == 1;
  }

  double real(Kind kind) { return kind == Kind::F32 ? number<float>() : number<double>(); }

  Kind kind() {
    const auto id = number<uint32_t>();
    if (id > static_cast<uint32_t>(Kind::F64)) fail(ErrorCode::CorruptFile, where_, "the value type {} is unknown", id);
    return static_cast<Kind>(id);
  }

  static size_t least_bytes(Kind kind) {
    switch (kind) {
      case Kind::U8:
      case Kind::I8:
      case Kind::Bool: return 1;
      case Kind::U16:
      case Kind::I16: return 2;
      case Kind::U32:
      case Kind::I32:
      case Kind::F32: return 4;
      default: return 8;
    }
  }

  template <typename T, typename Read>
  std::vector<T> list(size_t size, const Read& read) {
    std::vector<T> values;
    values.reserve(size);
    for (size_t i = 0; i < size; ++i) values.push_back(read());
    return values;
  }

  GgufValue array() {
    const Kind element = kind();
    const size_t size = count(least_bytes(element));
    if (element == Kind::Array) fail(ErrorCode::Unsupported, where_, "an array of arrays");
    if (element == Kind::Text) return list<std::string>(size, [&] { return text(); });
    if (element == Kind::F32 || element == Kind::F64) return list<double>(size, [&] { return real(element); });
    return list<int64_t>(size, [&] { return integer(element); });
  }

  GgufValue value() {
    switch (const Kind what = kind()) {
      case Kind::F32:
      case Kind::F64: return real(what);
      case Kind::Bool: return flag();
      case Kind::Text: return text();
      case Kind::Array: return array();
      default: return integer(what);
    }
  }

  void read_key(size_t index) {
    where_ = fmt::format("key {}", index);
    std::string key = text();
    where_ = "key " + in_quotes(key);
    if (!file_.metadata_.emplace(key, value()).second) fail(ErrorCode::CorruptFile, where_, "it comes twice");
  }

  /// Everything but where its data lie; returns its offset.
  uint64_t read_tensor(size_t index) {
    where_ = fmt::format("tensor {}", index);
    GgufTensor tensor;
    tensor.name = text();
    where_ = "tensor " + in_quotes(tensor.name);
    const auto rank = number<uint32_t>();
    if (rank > kMostRank)
      fail(ErrorCode::CorruptFile, where_, "{} dimensions; at most {} are possible", rank, kMostRank);
    for (uint32_t i = 0; i < rank; ++i) tensor.shape.insert(tensor.shape.begin(), number<int64_t>());
    tensor.type = &type_of(number<uint32_t>(), where_);
    if (!file_.by_name_.emplace(tensor.name, index).second) fail(ErrorCode::CorruptFile, where_, "it comes twice");
    file_.tensors_.push_back(std::move(tensor));
    return number<uint64_t>();
  }

  void place(const std::vector<uint64_t>& offsets) {
    const int64_t* given = file_.get_if<int64_t>("general.alignment");
    const int64_t alignment = given == nullptr ? kDefaultAlignment : *given;
    if (alignment < 1 || alignment > kMostAlignment || !std::has_single_bit(static_cast<uint64_t>(alignment))) {
      fail(ErrorCode::CorruptFile, "key 'general.alignment'", "it is {}; a power of two up to {} is needed", alignment,
           kMostAlignment);
    }
    const auto step = static_cast<size_t>(alignment);
    const size_t begin = std::min((at_ + step - 1) / step * step, bytes_.size());
    const auto data = bytes_.subspan(begin);
    for (size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      where_ = "tensor " + in_quotes(tensor.name);
      const size_t size = byte_size(tensor);
      if (offsets[i] % step != 0) fail(ErrorCode::CorruptFile, where_, "its data is not aligned to {}", alignment);
      if (offsets[i] > data.size() || size > data.size() - offsets[i]) {
        fail(ErrorCode::CorruptFile, where_, "{} bytes at {} reach beyond the {} bytes of data", size, offsets[i],
             data.size());
      }
      tensor.data = data.subspan(static_cast<size_t>(offsets[i]), size);
    }
  }

  size_t byte_size(const GgufTensor& tensor) const {
    int64_t elements = 0;
    try {
      elements = element_count(tensor.shape);
    } catch (const Error& error) {
      fail(ErrorCode::CorruptFile, where_, "{}", error.message());
    }
    const int64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % tensor.type->block != 0) {
      fail(ErrorCode::CorruptFile, where_, "rows of {} elements are no whole blocks of {}, as {} needs", row,
           tensor.type->block, tensor.type->name);
    }
    return static_cast<size_t>(elements / tensor.type->block * tensor.type->bytes);
  }

  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  std::string where_;  ///< for messages
  GgufFile file_;
};

GgufFile GgufFile::read(const std::filesystem::path& path) {
  const auto mapped = MappedFile::open(path);
  try {
    GgufFile file = GgufParser(mapped->bytes()).parse();
    file.owner_ = mapped;
    return file;
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), path.string() + ": " + error.where());
  }
}

GgufFile GgufFile::read(std::span<const std::byte> bytes) { return GgufParser(bytes).parse(); }

const GgufTensor* GgufFile::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Tensor GgufFile::tensor(const GgufTensor& tensor) const {
  const GgufType& type = *tensor.type;
  if (type.dequantize == nullptr) {
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data.data()) % static_cast<uintptr_t>(type.bytes) == 0;
    if (owner_ != nullptr && aligned) return {type.plain, tensor.shape, owner_, tensor.data.data()};
    return Tensor::copy_bytes(type.plain, tensor.shape, tensor.data);
  }
  const int64_t elements = element_count(tensor.shape);
  const std::shared_ptr<float[]> values = std::make_shared_for_overwrite<float[]>(static_cast<size_t>(elements));
  constexpr int64_t kGrain = 256;  // blocks a thread takes at least
  parallel_for(0, elements / type.block, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      type.dequantize(tensor.data.data() + i * type.bytes, values.get() + i * type.block);
    }
  });
  return {DType::Float32, tensor.shape, values, reinterpret_cast<const std::byte*>(values.get())};
}

}  // namespace kaon
