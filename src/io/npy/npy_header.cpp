#include "io/npy/npy_header.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace kaon {

namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kMagic = "\x93NUMPY"sv;
constexpr size_t kAlignment = 64;
constexpr size_t kMostDims = 64;  // NumPy's own limit

struct Row {
  DType type;
  std::string_view code;  // without the byte order
};

constexpr std::array kTypes{
    Row{DType::Bool, "b1"},      Row{DType::Int8, "i1"},        Row{DType::Int16, "i2"},   Row{DType::Int32, "i4"},
    Row{DType::Int64, "i8"},     Row{DType::UInt8, "u1"},       Row{DType::UInt16, "u2"},  Row{DType::UInt32, "u4"},
    Row{DType::UInt64, "u8"},    Row{DType::Float16, "f2"},     Row{DType::Float32, "f4"}, Row{DType::Float64, "f8"},
    Row{DType::Complex64, "c8"}, Row{DType::Complex128, "c16"},
};

/// Reads the Python dictionary of a header: three known keys with a string, a bool and a tuple of integers.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  void parse(NpyHeader& header) {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !std::exchange(descr, true))
        read_descr(header);
      else if (key == "fortran_order" && !std::exchange(order, true))
        header.fortran_order = boolean();
      else if (key == "shape" && !std::exchange(shape, true))
        header.shape = tuple();
      else
        corrupt(fmt::format("the key '{}' is unknown or given twice", key));
      if (accept(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size()) corrupt("something follows the dictionary");
    if (!descr || !order || !shape) corrupt("it must have 'descr', 'fortran_order' and 'shape'");
  }

 private:
  [[noreturn]] void corrupt(const std::string& why) const {
    fail(ErrorCode::CorruptFile, fmt::format("header, character {}", at_), "the .npy header is damaged: {}", why);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) corrupt(fmt::format("'{}' was expected", wanted));
  }

  std::string_view string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') corrupt("a string was expected");
    const size_t begin = ++at_;
    const size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) corrupt("a string does not end");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{"True"sv, true}, std::pair{"False"sv, false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += word.size();
      return value;
    }
    corrupt("True or False was expected");
  }

  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t dim = 0;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) corrupt("a dimension of the shape is no number from 0 to 2^63");
      at_ = static_cast<size_t>(end - text_.data());
      accept('L');  // Python 2 wrote long integers so
      if (shape.size() == kMostDims) corrupt(fmt::format("more than {} dimensions", kMostDims));
      shape.push_back(dim);
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return shape;
  }

  void read_descr(NpyHeader& header) {
    if (peek() == '[') {
      fail(ErrorCode::Unsupported, "header",
           "an array of records; plain bool, integer, float and complex arrays are accepted");
    }
    const std::string_view descr = string();
    const char order = descr.empty() ? '\0' : descr[0];
    const bool has_order = order == '<' || order == '>' || order == '|' || order == '=';
    const std::string_view code = has_order ? descr.substr(1) : descr;
    for (const Row& row : kTypes) {
      if (row.code != code) continue;
      header.type = row.type;
      header.big_endian = order == '>';
      return;
    }
    fail(ErrorCode::Unsupported, "header",
         "arrays of '{}'; bool, integer, float16/32/64 and complex arrays are accepted", descr.substr(0, 32));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::span<const std::byte> bytes) {
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!file.starts_with(kMagic))
    fail(ErrorCode::CorruptFile, "header", "this is no .npy file: it does not begin with \\x93NUMPY");
  const auto number = [&](size_t at, size_t count) {
    size_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= static_cast<size_t>(bytes[at + i]) << (8 * i);
    return value;
  };
  if (bytes.size() < kMagic.size() + 2) fail(ErrorCode::CorruptFile, "header", "the file is truncated");
  const size_t version = number(kMagic.size(), 1);
  if (version < 1 || version > 3) {
    fail(ErrorCode::Unsupported, "header", ".npy version {}; 1 to 3 are accepted", version);
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  const size_t start = kMagic.size() + 2 + length_bytes;
  if (bytes.size() < start) fail(ErrorCode::CorruptFile, "header", "the file is truncated");
  const size_t length = number(kMagic.size() + 2, length_bytes);
  if (length > bytes.size() - start) {
    fail(ErrorCode::CorruptFile, "header", "needs {} bytes where {} are left: the file is truncated", length,
         bytes.size() - start);
  }
  NpyHeader header;
  header.data_offset = start + length;
  Parser(file.substr(start, length)).parse(header);
  return header;
}

std::string make_npy_header(DType type, const Shape& shape) {
  std::string_view code;
  for (const Row& row : kTypes) {
    if (row.type == type) code = row.code;
  }
  if (code.empty()) {
    fail(ErrorCode::Unsupported, "npy", "NumPy has no type for {}; convert it to float32 first", name_of(type));
  }
  std::string dims;
  for (const int64_t dim : shape) dims += fmt::format("{},{}", dim, shape.size() == 1 ? "" : " ");
  if (shape.size() > 1) dims.resize(dims.size() - 2);
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 bits_of(type) == 8 ? '|' : '<', code, dims);
  // At most 64 dimensions of 19 digits: always shorter than version 1's 65535.
  const size_t head = kMagic.size() + 4;
  text.append((kAlignment - (head + text.size() + 1) % kAlignment) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace kaon
