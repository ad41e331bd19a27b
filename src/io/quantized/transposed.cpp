#include "io/quantized/transposed.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/quantized/bits.h"
#include "numerics/half.h"

namespace kaon::transposed {

namespace {

/// Nibble i of AWQ's words holds this one of eight columns.
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

int64_t group_of(const TensorSpec& spec, int64_t cols) {
  return spec.granularity == Granularity::PerGroup ? spec.group_size : cols;
}

/// Codes or zero points as they count from 0.
std::vector<std::byte> unsigned_codes(const CodedMatrix& matrix) {
  const Format& kind = format(matrix.spec.format);
  std::vector<std::byte> codes = matrix.codes;
  if (!kind.is_signed) return codes;
  for (std::byte& code : codes) code = static_cast<std::byte>(static_cast<int>(code) + (1 << (kind.bits - 1)));
  return codes;
}

std::vector<std::byte> unsigned_zeros(const CodedMatrix& matrix) {
  const Format& kind = format(matrix.spec.format);
  const int up = kind.is_signed ? 1 << (kind.bits - 1) : 0;
  std::vector<std::byte> zeros;
  for (size_t i = 0; i < matrix.scale.size(); ++i) {
    zeros.push_back(static_cast<std::byte>((matrix.zero_point.empty() ? 0 : matrix.zero_point[i]) + up));
  }
  return zeros;
}

/// [rows, cols] to [cols, rows].
template <typename T>
std::vector<T> turned(std::span<const T> values, int64_t rows, int64_t cols) {
  std::vector<T> result(values.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c)
      result[static_cast<size_t>(c * rows + r)] = values[static_cast<size_t>(r * cols + c)];
  }
  return result;
}

std::vector<std::byte> as_bytes(const std::vector<uint32_t>& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

/// Rows of [lines, count] packed along each line.
std::vector<uint32_t> pack_lines(std::span<const std::byte> numbers, int64_t lines, int64_t count, int bits, bool awq) {
  const int64_t each = packed_words(count, bits);
  std::vector<uint32_t> words(static_cast<size_t>(lines * each));
  std::vector<std::byte> line(static_cast<size_t>(count));
  for (int64_t i = 0; i < lines; ++i) {
    for (int64_t k = 0; k < count; ++k) {
      const int64_t from = awq ? k / 8 * 8 + kAwqOrder[k % 8] : k;
      line[static_cast<size_t>(k)] = numbers[static_cast<size_t>(i * count + from)];
    }
    pack_words(line.data(), count, bits,
               std::span(words).subspan(static_cast<size_t>(i * each), static_cast<size_t>(each)));
  }
  return words;
}

std::vector<std::byte> unpack_lines(const Tensor& words, int64_t lines, int64_t count, int bits, bool awq) {
  const int64_t each = packed_words(count, bits);
  const auto* data = reinterpret_cast<const uint32_t*>(words.bytes().data());
  std::vector<std::byte> numbers(static_cast<size_t>(lines * count)), line(static_cast<size_t>(count));
  for (int64_t i = 0; i < lines; ++i) {
    unpack_words(data + i * each, count, bits, line);
    for (int64_t k = 0; k < count; ++k) {
      const int64_t to = awq ? k / 8 * 8 + kAwqOrder[k % 8] : k;
      numbers[static_cast<size_t>(i * count + to)] = line[static_cast<size_t>(k)];
    }
  }
  return numbers;
}

std::vector<std::byte> halves(std::span<const float> values) {
  std::vector<std::byte> bytes(2 * values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = float32_to_float16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

const Tensor& needed(const FindPart& find, const char* suffix, const std::string& where) {
  if (const Tensor* tensor = find(suffix)) return *tensor;
  fail(ErrorCode::CorruptFile, where, "the tensor '{}' is missing", suffix);
}

void expect_shape(const Tensor& tensor, const Shape& shape, const char* suffix, const std::string& where) {
  if (tensor.shape() == shape) return;
  fail(ErrorCode::CorruptFile, where, "'{}' has the shape {}; {} is needed", suffix, to_string(tensor.shape()),
       to_string(shape));
}

}  // namespace

void check(Method method, const TensorSpec& spec, int64_t rows, int64_t cols, const std::string& where) {
  const Format& kind = format(spec.format);
  const bool awq = method == Method::Awq;
  const bool groups = spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerChannel;
  const bool widths = awq ? kind.bits == 4 : kind.bits == 2 || kind.bits == 3 || kind.bits == 4 || kind.bits == 8;
  if (kind.kind != FormatKind::Integer || !groups || !widths) {
    fail(ErrorCode::Unsupported, where,
         "{} has no place for {} {}; integers of {} bits in groups or per channel have one", awq ? "awq" : "gptq",
         spec.format, enum_name(spec.granularity), awq ? "4" : "2, 3, 4 or 8");
  }
  if (rows % 8 != 0 || rows * kind.bits % 32 != 0 || cols * kind.bits % 32 != 0 || cols % group_of(spec, cols) != 0) {
    fail(ErrorCode::Unsupported, where, "a matrix of {} x {} in groups of {} does not fill the words of {}; exclude it",
         rows, cols, group_of(spec, cols), awq ? "awq" : "gptq");
  }
}

std::vector<Part> parts_of(Method method, const TensorSpec& spec, int64_t rows, int64_t cols) {
  const int bits = format(spec.format).bits;
  const int64_t groups = cols / group_of(spec, cols);
  const Shape codes =
      method == Method::Awq ? Shape{cols, packed_words(rows, bits)} : Shape{packed_words(cols, bits), rows};
  std::vector<Part> parts{{"qweight", DType::Int32, codes, 0},
                          {"qzeros", DType::Int32, {groups, packed_words(rows, bits)}, 0},
                          {"scales", DType::Float16, {groups, rows}, 0}};
  if (method == Method::Gptq) parts.push_back({"g_idx", DType::Int32, {cols}, 0});
  return parts;
}

std::vector<std::vector<std::byte>> encode(Method method, const CodedMatrix& matrix) {
  const int bits = format(matrix.spec.format).bits;
  const int64_t rows = matrix.rows, cols = matrix.cols, groups = std::ssize(matrix.scale) / rows;
  const bool awq = method == Method::Awq;
  const std::vector<std::byte> codes = unsigned_codes(matrix);
  std::vector<uint32_t> words;
  if (awq) {
    words = pack_lines(turned<std::byte>(codes, rows, cols), cols, rows, bits, true);
  } else {
    const int64_t each = packed_words(cols, bits);
    words = turned<uint32_t>(pack_lines(codes, rows, cols, bits, false), rows, each);
  }
  std::vector<std::byte> zeros = turned<std::byte>(unsigned_zeros(matrix), rows, groups);
  if (!awq) {
    for (std::byte& zero : zeros) zero = static_cast<std::byte>(static_cast<int>(zero) - 1);  // version 1 adds it again
  }
  std::vector<std::vector<std::byte>> parts{as_bytes(words), as_bytes(pack_lines(zeros, groups, rows, bits, awq)),
                                            halves(turned<float>(matrix.scale, rows, groups))};
  if (awq) return parts;
  std::vector<uint32_t> group_of_input;
  for (int64_t i = 0; i < cols; ++i) group_of_input.push_back(static_cast<uint32_t>(i / (cols / groups)));
  parts.push_back(as_bytes(group_of_input));
  return parts;
}

Shape weight_shape(const Settings& settings, const FindPart& find, const std::string& where) {
  const Tensor& codes = needed(find, "qweight", where);
  if (codes.rank() != 2 || codes.type() != DType::Int32)
    fail(ErrorCode::CorruptFile, where, "'qweight' is no int32 matrix");
  const int64_t a = codes.shape()[0], b = codes.shape()[1];
  return settings.method == Method::Awq ? Shape{b * 32 / settings.bits, a} : Shape{b, a * 32 / settings.bits};
}

Tensor decode(const Settings& settings, const FindPart& find, const std::string& where) {
  const Shape shape = weight_shape(settings, find, where);
  const int64_t rows = shape[0], cols = shape[1];
  const int bits = settings.bits;
  const bool awq = settings.method == Method::Awq;
  const int64_t group = settings.group_size > 0 ? settings.group_size : std::max<int64_t>(cols, 1);
  const int64_t groups = (cols + group - 1) / group;
  const Tensor& scales = needed(find, "scales", where);
  const Tensor& stored_zeros = needed(find, "qzeros", where);
  expect_shape(scales, {groups, rows}, "scales", where);
  expect_shape(stored_zeros, {groups, packed_words(rows, bits)}, "qzeros", where);
  if (stored_zeros.type() != DType::Int32) fail(ErrorCode::CorruptFile, where, "'qzeros' is not int32");
  const Tensor& words = *find("qweight");
  std::vector<std::byte> codes;  // [rows, cols]
  if (awq) {
    codes = turned<std::byte>(unpack_lines(words, cols, rows, bits, true), cols, rows);
  } else {
    const int64_t each = words.shape()[0];
    const std::span data(reinterpret_cast<const uint32_t*>(words.bytes().data()), static_cast<size_t>(words.size()));
    const std::vector<uint32_t> lines = turned<uint32_t>(data, each, rows);
    const Tensor flat = Tensor::copy_bytes(DType::Int32, {rows, each}, std::as_bytes(std::span(lines)));
    codes = unpack_lines(flat, rows, cols, bits, false);
  }
  const std::vector<std::byte> zeros = unpack_lines(stored_zeros, groups, rows, bits, awq);
  std::vector<int64_t> group_of_input;
  if (const Tensor* index = awq ? nullptr : find("g_idx")) {
    expect_shape(*index, {cols}, "g_idx", where);
    group_of_input = index->to_int64();
    for (const int64_t one : group_of_input) {
      if (one < 0 || one >= groups)
        fail(ErrorCode::CorruptFile, where, "'g_idx' names the group {} of {}", one, groups);
    }
  } else {
    for (int64_t i = 0; i < cols; ++i) group_of_input.push_back(i / group);
  }
  const std::vector<float> steps = scales.to_float();
  const int mask = (1 << bits) - 1;
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<size_t>(group_of_input[static_cast<size_t>(c)] * rows + r);
      const int zero = awq ? static_cast<int>(zeros[at]) : (static_cast<int>(zeros[at]) + 1) & mask;
      const int code = static_cast<int>(codes[static_cast<size_t>(r * cols + c)]);
      values[static_cast<size_t>(r * cols + c)] = static_cast<float>(code - zero) * steps[at];
    }
  }
  return Tensor::of<float>(shape, values);
}

}  // namespace kaon::transposed
