// The layout: the header's length as eight bytes, low end first; the header, a JSON object with one entry for each
// tensor and maybe "__metadata__"; then the tensors' bytes, C order, low end first. Offsets count from the header's
// end.
#include "io/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "io/safetensors/safetensors_header.h"

namespace kaon {

static_assert(std::endian::native == std::endian::little, "the data of the format is little-endian");

namespace fs = std::filesystem;

namespace {

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMostHeader = 100'000'000;
constexpr std::string_view kMetadata = "__metadata__";

struct Row {
  std::string_view name;
  DType type;
};

/// In the order of the reference implementation, whose writer puts the last first.
constexpr std::array kTypes{
    Row{"BOOL", DType::Bool},
    Row{"F4", DType::Float4E2M1},
    Row{"U8", DType::UInt8},
    Row{"I8", DType::Int8},
    Row{"F8_E5M2", DType::Float8E5M2},
    Row{"F8_E4M3", DType::Float8E4M3FN},
    Row{"F8_E8M0", DType::Float8E8M0},
    Row{"F8_E4M3FNUZ", DType::Float8E4M3FNUZ},
    Row{"F8_E5M2FNUZ", DType::Float8E5M2FNUZ},
    Row{"I16", DType::Int16},
    Row{"U16", DType::UInt16},
    Row{"F16", DType::Float16},
    Row{"BF16", DType::BFloat16},
    Row{"I32", DType::Int32},
    Row{"U32", DType::UInt32},
    Row{"F32", DType::Float32},
    Row{"C64", DType::Complex64},
    Row{"F64", DType::Float64},
    Row{"I64", DType::Int64},
    Row{"U64", DType::UInt64},
};

/// For messages: a name from a file may be of any length.
std::string in_quotes(std::string_view name) { return fmt::format("'{}'", name.substr(0, 200)); }

struct Entry {
  std::string name;
  std::string type;
  Shape shape;
  std::vector<int64_t> offsets;
  bool has_shape = false;
};

/// Takes the header apart as it is parsed; whatever the format does not define is refused.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsMetadata* metadata) : metadata_(metadata) {}
  std::vector<Entry>& entries() { return entries_; }

  bool null() override { unexpected("null"); }
  bool boolean(bool) override { unexpected("a bool"); }
  bool number_integer(number_integer_t) override { unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { unexpected("a number that is no 64-bit integer"); }
  bool binary(binary_t&) override { unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != Level::List) unexpected("a number");
    if (value >> 63 != 0) unexpected("a number of 2^63 or more");
    list().push_back(static_cast<int64_t>(value));
    return true;
  }

  bool string(string_t& text) override {
    if (level_ == Level::Metadata) {
      if (metadata_ != nullptr) (*metadata_)[field_] = std::move(text);
    } else if (level_ == Level::Tensor && field_ == "dtype") {
      entries_.back().type = std::move(text);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_object(size_t) override {
    if (level_ == Level::Start) {
      level_ = Level::Top;
    } else if (level_ == Level::Top) {
      level_ = name_ == kMetadata ? Level::Metadata : Level::Tensor;
      fields_.clear();
      if (level_ == Level::Tensor) entries_.push_back({.name = name_});
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& text) override {
    std::set<std::string>& known = level_ == Level::Top ? names_ : fields_;
    if (!known.insert(text).second) fail(ErrorCode::CorruptFile, where(), "the key {} comes twice", in_quotes(text));
    (level_ == Level::Top ? name_ : field_) = std::move(text);
    if (level_ == Level::Tensor && field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
      fail(ErrorCode::CorruptFile, where(), "unknown key {}; dtype, shape and data_offsets are known",
           in_quotes(field_));
    }
    return true;
  }

  bool end_object() override {
    if (level_ == Level::Tensor) {
      const Entry& entry = entries_.back();
      if (entry.type.empty() || !entry.has_shape || entry.offsets.size() != 2) {
        fail(ErrorCode::CorruptFile, where(), "a tensor needs a dtype, a shape and two data_offsets");
      }
    }
    level_ = level_ == Level::Top ? Level::Start : Level::Top;
    return true;
  }

  bool start_array(size_t) override {
    if (level_ != Level::Tensor || field_ == "dtype") unexpected("a list");
    if (field_ == "shape") entries_.back().has_shape = true;
    level_ = Level::List;
    return true;
  }

  bool end_array() override {
    level_ = Level::Tensor;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(ErrorCode::CorruptFile, "header", "no valid JSON at byte {}", position);
  }

 private:
  enum class Level { Start, Top, Metadata, Tensor, List };

  std::vector<int64_t>& list() { return field_ == "shape" ? entries_.back().shape : entries_.back().offsets; }

  std::string where() const { return name_.empty() ? "header" : "header, " + in_quotes(name_); }

  [[noreturn]] void unexpected(const char* what) const {
    fail(ErrorCode::CorruptFile, where(), "{} where the format has none", what);
  }

  SafetensorsMetadata* metadata_;
  std::vector<Entry> entries_;
  std::set<std::string> names_;
  std::set<std::string> fields_;  ///< of the present entry
  std::string name_;
  std::string field_;
  Level level_ = Level::Start;
};

DType type_of(const Entry& entry) {
  for (const Row& row : kTypes) {
    if (row.name == entry.type) return row.type;
  }
  const bool six_bits = entry.type == "F6_E2M3" || entry.type == "F6_E3M2";
  fail(six_bits ? ErrorCode::Unsupported : ErrorCode::CorruptFile, in_quotes(entry.name), "the dtype {} is {}",
       in_quotes(entry.type), six_bits ? "not supported" : "unknown");
}

/// `owner` keeps `data` alive; nullptr means that it must be copied.
Tensor make_tensor(Entry& entry, std::span<const std::byte> data, const std::shared_ptr<const void>& owner) {
  const DType type = type_of(entry);
  int64_t count = 0;
  try {
    count = element_count(entry.shape);
  } catch (const Error& error) {
    fail(ErrorCode::CorruptFile, in_quotes(entry.name), "{}", error.message());
  }
  if (count * bits_of(type) % 8 != 0 || stored_bytes(type, count) != std::ssize(data)) {
    fail(ErrorCode::CorruptFile, in_quotes(entry.name), "its shape has {} elements of {} bits, its data {} bytes",
         count, bits_of(type), data.size());
  }
  if (type == DType::Bool && std::ranges::any_of(data, [](std::byte b) { return b > std::byte{1}; })) {
    fail(ErrorCode::CorruptFile, in_quotes(entry.name), "a bool that is neither 0 nor 1");
  }
  const size_t width = std::max<size_t>(1, static_cast<size_t>(bits_of(type)) / 8);
  if (owner == nullptr || reinterpret_cast<uintptr_t>(data.data()) % width != 0) {
    return Tensor::copy_bytes(type, std::move(entry.shape), data);
  }
  return {type, std::move(entry.shape), owner, data.data()};
}

NamedTensors parse(std::span<const std::byte> bytes, const std::shared_ptr<const void>& owner,
                   SafetensorsMetadata* metadata) {
  if (bytes.size() < kLengthBytes)
    fail(ErrorCode::CorruptFile, "header", "no safetensors file: {} bytes", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > kMostHeader || length > bytes.size() - kLengthBytes) {
    fail(ErrorCode::CorruptFile, "header", "no safetensors file, or truncated: {} bytes of header in a file of {}",
         length, bytes.size());
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) fail(ErrorCode::CorruptFile, "header", "it does not begin with '{{'");
  if (metadata != nullptr) metadata->clear();
  HeaderReader header(metadata);
  nlohmann::json::sax_parse(text.begin(), text.end(), &header);

  const auto data = bytes.subspan(kLengthBytes + length);
  std::ranges::sort(header.entries(), {},
                    [](const Entry& entry) { return std::pair(entry.offsets[0], entry.offsets[1]); });
  NamedTensors tensors;
  int64_t done = 0;
  for (Entry& entry : header.entries()) {
    const int64_t begin = entry.offsets[0], end = entry.offsets[1];
    if (begin != done || end < begin || end > std::ssize(data)) {
      fail(ErrorCode::CorruptFile, in_quotes(entry.name),
           "its data lies from {} to {}, where {} to at most {} was expected: no holes, no overlaps", begin, end, done,
           data.size());
    }
    const auto part = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    Tensor tensor = make_tensor(entry, part, owner);
    tensors.emplace_back(std::move(entry.name), std::move(tensor));
    done = end;
  }
  if (done != std::ssize(data)) {
    fail(ErrorCode::CorruptFile, "data", "{} bytes follow the last tensor", std::ssize(data) - done);
  }
  return tensors;
}

size_t order_of(DType type) {
  const auto row = std::ranges::find(kTypes, type, &Row::type);
  if (row == kTypes.end()) fail(ErrorCode::Unsupported, "safetensors", "the format has no type for {}", name_of(type));
  return static_cast<size_t>(row - kTypes.begin());
}

}  // namespace

NamedTensors read_safetensors(const fs::path& path, SafetensorsMetadata* metadata) {
  const auto file = MappedFile::open(path);
  try {
    return parse(file->bytes(), file, metadata);
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), path.string() + ": " + error.where());
  }
}

NamedTensors read_safetensors(std::span<const std::byte> bytes, SafetensorsMetadata* metadata) {
  return parse(bytes, nullptr, metadata);
}

void sort_as_written(std::vector<PlannedTensor>& tensors, const std::string& where) {
  std::set<std::string_view> names{kMetadata};
  for (const PlannedTensor& tensor : tensors) {
    if (names.insert(tensor.name).second) continue;
    fail(ErrorCode::InvalidInput, where, "the name {} comes twice or is reserved", in_quotes(tensor.name));
  }
  std::ranges::sort(tensors, [](const PlannedTensor& a, const PlannedTensor& b) {
    const size_t first = order_of(a.type), second = order_of(b.type);
    return first != second ? first > second : a.name < b.name;
  });
}

std::string safetensors_header(const std::vector<PlannedTensor>& tensors, const SafetensorsMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(kMetadata)] = metadata;
  int64_t offset = 0;
  for (const PlannedTensor& tensor : tensors) {
    const int64_t count = element_count(tensor.shape);
    if (count * bits_of(tensor.type) % 8 != 0) {
      fail(ErrorCode::InvalidInput, in_quotes(tensor.name), "{} elements of {} do not fill whole bytes", count,
           name_of(tensor.type));
    }
    const int64_t end = offset + stored_bytes(tensor.type, count);
    nlohmann::ordered_json entry{
        {"dtype", kTypes[order_of(tensor.type)].name}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    // Names are known to differ; operator[] would look through all of them each time.
    header.get_ref<nlohmann::ordered_json::object_t&>().emplace_back(tensor.name, std::move(entry));
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(ErrorCode::InvalidInput, "safetensors", "a name or a text of the metadata is no valid UTF-8");
  }
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  if (text.size() > kMostHeader) {
    fail(ErrorCode::InvalidInput, "safetensors", "a header of {} bytes; at most {} are allowed", text.size(),
         kMostHeader);
  }
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

void write_safetensors(const NamedTensors& tensors, const fs::path& path, const SafetensorsMetadata& metadata) {
  std::vector<PlannedTensor> plan;
  std::map<std::string_view, const Tensor*> by_name;
  for (const auto& [name, tensor] : tensors) {
    plan.push_back({name, tensor.type(), tensor.shape()});
    by_name.emplace(name, &tensor);
  }
  sort_as_written(plan, path.string());
  AtomicFile file(path);
  file.write(safetensors_header(plan, metadata));
  for (const PlannedTensor& tensor : plan) file.write(by_name.at(tensor.name)->bytes());
  file.commit();
}

}  // namespace kaon
