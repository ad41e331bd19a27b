#include "io/quantized/compressed_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parallel.h"
#include "io/quantized/bits.h"
#include "numerics/half.h"

namespace kaon::compressed_tensors {

namespace {

constexpr const char* kPacked = "pack-quantized";
constexpr const char* kInt = "int-quantized";
constexpr const char* kFloat = "float-quantized";
constexpr const char* kNaive = "naive-quantized";
constexpr const char* kNvfp4 = "nvfp4-pack-quantized";
constexpr const char* kMxfp4 = "mxfp4-pack-quantized";
constexpr const char* kMxfp8 = "mxfp8-quantized";

bool is_fp4(const std::string& format) { return format == kNvfp4 || format == kMxfp4; }

/// Scales of a row; 0: one for the whole matrix.
int64_t groups_of(const TensorSpec& spec, int64_t cols) {
  if (has_own_scales(spec)) {
    const int64_t block = format(spec.format).block;
    return (cols + block - 1) / block;
  }
  if (spec.granularity == Granularity::PerTensor) return 0;
  return spec.granularity == Granularity::PerGroup ? (cols + spec.group_size - 1) / spec.group_size : 1;
}

std::vector<std::byte> in_type(std::span<const float> values, DType type) {
  std::vector<std::byte> bytes(static_cast<size_t>(stored_bytes(type, std::ssize(values))));
  if (type == DType::Float32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = type == DType::Float16 ? float32_to_float16(values[i]) : float32_to_bfloat16(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, sizeof(half));
  }
  return bytes;
}

/// Unsigned codes: what is stored counts from the lowest one.
void add_offset(std::vector<std::byte>& codes, int offset) {
  for (std::byte& code : codes) code = static_cast<std::byte>(static_cast<int>(code) + offset);
}

/// Zero points as signed numbers of the stored width.
std::vector<std::byte> signed_zero_points(const CodedMatrix& matrix, int bits, bool is_signed) {
  const int down = is_signed ? 0 : 1 << (bits - 1);
  std::vector<std::byte> zeros;
  for (const int32_t zero : matrix.zero_point) zeros.push_back(static_cast<std::byte>(zero - down));
  return zeros;
}

std::vector<std::byte> bytes_of(const std::vector<uint32_t>& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

std::vector<std::byte> pack_rows(const CodedMatrix& matrix, int bits, bool is_signed) {
  const int64_t each = packed_words(matrix.cols, bits);
  std::vector<std::byte> packed(static_cast<size_t>(matrix.rows * each) * sizeof(uint32_t));
  const std::span words(reinterpret_cast<uint32_t*>(packed.data()), static_cast<size_t>(matrix.rows * each));
  std::vector<std::byte> codes(static_cast<size_t>(matrix.cols));
  for (int64_t row = 0; row < matrix.rows; ++row) {
    std::copy_n(matrix.codes.data() + row * matrix.cols, matrix.cols, codes.data());
    if (is_signed) add_offset(codes, 1 << (bits - 1));
    pack_words(codes.data(), matrix.cols, bits,
               words.subspan(static_cast<size_t>(row * each), static_cast<size_t>(each)));
  }
  return packed;
}

/// [rows, groups] packed along the rows: [⌈rows · bits / 32⌉, groups].
std::vector<std::byte> pack_zero_points(const CodedMatrix& matrix, int bits, bool is_signed) {
  std::vector<std::byte> zeros = signed_zero_points(matrix, bits, is_signed);
  add_offset(zeros, 1 << (bits - 1));
  const int64_t groups = matrix.groups(), each = packed_words(matrix.rows, bits);
  std::vector<uint32_t> words(static_cast<size_t>(each * groups)), column(static_cast<size_t>(each));
  for (int64_t group = 0; group < groups; ++group) {
    pack_words(zeros.data() + group, matrix.rows, bits, column, groups);
    for (int64_t i = 0; i < each; ++i) words[static_cast<size_t>(i * groups + group)] = column[static_cast<size_t>(i)];
  }
  return bytes_of(words);
}

std::vector<std::byte> pack_nibbles(std::span<const std::byte> codes) {
  std::vector<std::byte> packed(codes.size() / 2);
  for (size_t i = 0; i < packed.size(); ++i) {
    packed[i] = (codes[2 * i] & std::byte{15}) | (codes[2 * i + 1] << 4);
  }
  return packed;
}

}  // namespace

std::string format_for(const TensorSpec& weight, bool inputs, const std::string& where) {
  const Format& kind = format(weight.format);
  const bool plain = weight.granularity == Granularity::PerTensor || weight.granularity == Granularity::PerChannel;
  if (weight.format == "nvfp4") return kNvfp4;
  if (weight.format == "mxfp4") return kMxfp4;
  if (weight.format == "mxfp8_e4m3") return kMxfp8;
  if (kind.kind == FormatKind::Float && weight.format == "fp8_e4m3" && plain) return kFloat;
  if (kind.kind == FormatKind::Integer && kind.bits <= 8 && (plain || weight.granularity == Granularity::PerGroup)) {
    return inputs && kind.bits == 8 && plain ? kInt : kPacked;
  }
  fail(ErrorCode::Unsupported, where,
       "compressed-tensors has no place for {} {}; integers of up to 8 bits (per tensor, channel or group), fp8_e4m3 "
       "(per tensor or channel), nvfp4, mxfp4 and mxfp8 have one",
       weight.format, enum_name(weight.granularity));
}

std::vector<Part> parts_of(const TensorSpec& spec, const std::string& layout, int64_t rows, int64_t cols,
                           DType scale_type) {
  const int64_t groups = groups_of(spec, cols);
  const int bits = format(spec.format).bits;
  const bool one = groups == 0;
  const Shape scale_shape = one ? Shape{1} : Shape{rows, groups};
  if (is_fp4(layout)) {
    std::vector<Part> parts{{"weight_packed", DType::UInt8, {rows, cols / 2}, cols * 4}};
    parts.push_back({"weight_scale", layout == kNvfp4 ? DType::Float8E4M3FN : DType::UInt8, scale_shape, groups * 8});
    if (layout == kNvfp4) parts.push_back({"weight_global_scale", DType::Float32, {1}, 0});
    return parts;
  }
  if (layout == kMxfp8) {
    return {{"weight", DType::Float8E4M3FN, {rows, cols}, cols * 8},
            {"weight_scale", DType::UInt8, scale_shape, groups * 8}};
  }
  const int64_t scale_bits = groups * bits_of(scale_type);
  if (layout == kPacked) {
    const int64_t words = packed_words(cols, bits);
    std::vector<Part> parts{{"weight_packed", DType::Int32, {rows, words}, words * 32},
                            {"weight_scale", scale_type, scale_shape, scale_bits},
                            {"weight_shape", DType::Int64, {2}, 0}};
    if (!spec.symmetric && one) parts.push_back({"weight_zero_point", DType::Int8, {1}, 0});
    if (!spec.symmetric && !one) {
      parts.push_back({"weight_zero_point", DType::Int32, {packed_words(rows, bits), groups}, groups * bits});
    }
    return parts;
  }
  std::vector<Part> parts{{"weight", layout == kInt ? DType::Int8 : DType::Float8E4M3FN, {rows, cols}, cols * 8},
                          {"weight_scale", scale_type, scale_shape, scale_bits}};
  if (layout == kInt && !spec.symmetric) {
    parts.push_back({"weight_zero_point", DType::Int8, scale_shape, groups * 8});
  }
  return parts;
}

std::vector<std::vector<std::byte>> encode(const CodedMatrix& matrix, const std::string& layout, DType scale_type) {
  const Format& kind = format(matrix.spec.format);
  std::vector<std::vector<std::byte>> parts;
  if (is_fp4(layout)) {
    parts.push_back(pack_nibbles(matrix.codes));
    parts.push_back(matrix.block_scales);
    if (layout == kNvfp4) parts.push_back(in_type(std::span(&matrix.global_scale, 1), DType::Float32));
    return parts;
  }
  if (layout == kMxfp8) return {matrix.codes, matrix.block_scales};
  const bool one = matrix.spec.granularity == Granularity::PerTensor;
  if (layout == kPacked) {
    const std::array<int64_t, 2> shape{matrix.rows, matrix.cols};
    const auto shape_bytes = std::as_bytes(std::span(shape));
    parts.push_back(pack_rows(matrix, kind.bits, kind.is_signed));
    parts.push_back(in_type(matrix.scale, scale_type));
    parts.emplace_back(shape_bytes.begin(), shape_bytes.end());
    if (!matrix.spec.symmetric) {
      parts.push_back(one ? signed_zero_points(matrix, kind.bits, kind.is_signed)
                          : pack_zero_points(matrix, kind.bits, kind.is_signed));
    }
    return parts;
  }
  parts.push_back(matrix.codes);
  parts.push_back(in_type(matrix.scale, scale_type));
  if (layout == kInt) {
    if (!kind.is_signed) add_offset(parts.front(), -(1 << (kind.bits - 1)));
    if (!matrix.spec.symmetric) parts.push_back(signed_zero_points(matrix, kind.bits, kind.is_signed));
  }
  return parts;
}

nlohmann::ordered_json to_args(const TensorSpec& spec, bool dynamic) {
  const Format& kind = format(spec.format);
  nlohmann::ordered_json args;
  const bool blocks = kind.kind == FormatKind::Block;
  args["num_bits"] = blocks ? format(kind.element).bits : kind.bits;
  args["type"] = kind.kind == FormatKind::Integer ? "int" : "float";
  args["symmetric"] = kind.kind != FormatKind::Integer || spec.symmetric;
  args["group_size"] = nullptr;
  if (blocks) {
    args["strategy"] = kind.global_scale ? "tensor_group" : "group";
    args["group_size"] = kind.block;
    args["scale_dtype"] = kind.scale == ScaleType::E4M3 ? "torch.float8_e4m3fn" : "torch.uint8";
  } else {
    switch (spec.granularity) {
      case Granularity::PerTensor: args["strategy"] = "tensor"; break;
      case Granularity::PerChannel: args["strategy"] = "channel"; break;
      case Granularity::PerToken: args["strategy"] = "token"; break;
      default: args["strategy"] = "group"; args["group_size"] = spec.group_size;
    }
  }
  args["block_structure"] = nullptr;
  args["dynamic"] = dynamic;
  args["actorder"] = nullptr;
  args["observer"] = dynamic ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json("minmax");
  args["observer_kwargs"] = nlohmann::ordered_json::object();
  return args;
}

}  // namespace kaon::compressed_tensors
