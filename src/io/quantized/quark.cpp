#include "io/quantized/quark.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/quantized/bits.h"
#include "numerics/half.h"

namespace kaon::quark {

namespace ct = compressed_tensors;

namespace {

/// Nibble i of a word holds this one of eight outputs.
constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

bool is_int4(const TensorSpec& spec) {
  const Format& kind = format(spec.format);
  return kind.kind == FormatKind::Integer && kind.bits == 4;
}

/// compressed-tensors' name for what lies the same way.
std::string like(const TensorSpec& spec) {
  if (spec.format == "mxfp4") return "mxfp4-pack-quantized";
  return format(spec.format).kind == FormatKind::Integer ? "int-quantized" : "float-quantized";
}
std::string like(const Args& args) {
  if (args.is_float && args.bits == 4) return "mxfp4-pack-quantized";
  return args.is_float ? "float-quantized" : "int-quantized";
}

int64_t group_of(const TensorSpec& spec, int64_t cols) {
  return spec.granularity == Granularity::PerGroup ? spec.group_size : cols;
}

/// Numbers [lines, count] of 4 bits, packed along each line.
std::vector<std::byte> pack(const std::vector<int>& numbers, int64_t lines, int64_t count) {
  std::vector<uint32_t> words(static_cast<size_t>(lines * count / 8));
  for (size_t w = 0; w < words.size(); ++w) {
    for (size_t i = 0; i < 8; ++i) {
      words[w] |= (static_cast<uint32_t>(numbers[8 * w + static_cast<size_t>(kOrder[i])]) & 15U) << (4 * i);
    }
  }
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

std::vector<int> unpack(const Tensor& words, bool reordered, bool is_signed) {
  std::vector<int> numbers(static_cast<size_t>(words.size() * 8));
  const auto* data = reinterpret_cast<const uint32_t*>(words.bytes().data());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int code = static_cast<int>(data[i / 8] >> (4 * (i % 8)) & 15U);
    const size_t to = i / 8 * 8 + (reordered ? static_cast<size_t>(kOrder[i % 8]) : i % 8);
    numbers[to] = is_signed && code > 7 ? code - 16 : code;
  }
  return numbers;
}

const Tensor& needed(const FindPart& find, const char* suffix, const std::string& where) {
  if (const Tensor* tensor = find(suffix)) return *tensor;
  fail(ErrorCode::CorruptFile, where, "the tensor '{}' is missing", suffix);
}

void expect(const Tensor& tensor, DType type, const Shape& shape, const char* suffix, const std::string& where) {
  if (tensor.type() == type && tensor.shape() == shape) return;
  fail(ErrorCode::CorruptFile, where, "'{}' is {} {}; {} {} is needed", suffix, name_of(tensor.type()),
       to_string(tensor.shape()), name_of(type), to_string(shape));
}

std::string text(const nlohmann::json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

bool by_rows(const TensorSpec& spec) { return !is_int4(spec); }

void check(const TensorSpec& spec, int64_t rows, int64_t cols, const std::string& where) {
  const Format& kind = format(spec.format);
  const bool plain = spec.granularity == Granularity::PerTensor || spec.granularity == Granularity::PerChannel;
  const bool int8 = kind.kind == FormatKind::Integer && kind.bits == 8 && plain;
  const bool int4 =
      is_int4(spec) && (spec.granularity == Granularity::PerGroup || spec.granularity == Granularity::PerChannel);
  if (!int8 && !int4 && !(spec.format == "fp8_e4m3" && plain) && spec.format != "mxfp4") {
    fail(ErrorCode::Unsupported, where,
         "quark has no place for {} {}; 4-bit integers per channel or group, 8-bit integers and fp8_e4m3 per tensor or "
         "channel, and mxfp4 have one",
         spec.format, enum_name(spec.granularity));
  }
  if (int4 && (rows % 8 != 0 || cols % group_of(spec, cols) != 0)) {
    fail(ErrorCode::Unsupported, where,
         "a matrix of {} x {} in groups of {} does not fill the words of quark; exclude it", rows, cols,
         group_of(spec, cols));
  }
}

std::vector<Part> parts_of(const TensorSpec& spec, int64_t rows, int64_t cols, DType scale_type) {
  if (is_int4(spec)) {
    const int64_t groups = cols / group_of(spec, cols);
    std::vector<Part> parts{{"weight", DType::Int32, {cols, rows / 8}, 0},
                            {"weight_scale", scale_type, {groups, rows}, 0}};
    if (!spec.symmetric) parts.push_back({"weight_zero_point", DType::Int32, {groups, rows / 8}, 0});
    return parts;
  }
  std::vector<Part> parts = ct::parts_of(spec, like(spec), rows, cols, scale_type);
  parts.front().suffix = "weight";
  for (Part& part : parts) {
    if (part.suffix == "weight" || has_own_scales(spec)) continue;
    part.shape = spec.granularity == Granularity::PerTensor ? Shape{} : Shape{rows};
  }
  return parts;
}

std::vector<std::vector<std::byte>> encode(const CodedMatrix& matrix, DType scale_type) {
  if (!is_int4(matrix.spec)) return ct::encode(matrix, like(matrix.spec), scale_type);
  const int64_t rows = matrix.rows, cols = matrix.cols, groups = std::ssize(matrix.scale) / rows;
  std::vector<int> codes(matrix.codes.size()), zeros(matrix.zero_point.size());
  std::vector<float> scales(matrix.scale.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      codes[static_cast<size_t>(c * rows + r)] = static_cast<int>(matrix.codes[static_cast<size_t>(r * cols + c)]);
    }
    for (int64_t g = 0; g < groups; ++g) {
      const auto from = static_cast<size_t>(r * groups + g), to = static_cast<size_t>(g * rows + r);
      scales[to] = matrix.scale[from];
      if (!zeros.empty()) zeros[to] = matrix.zero_point[from];
    }
  }
  std::vector<std::byte> stored(static_cast<size_t>(stored_bytes(scale_type, std::ssize(scales))));
  for (size_t i = 0; i < scales.size(); ++i) {
    if (scale_type == DType::Float32) {
      std::memcpy(stored.data() + 4 * i, &scales[i], 4);
      continue;
    }
    const uint16_t half = scale_type == DType::Float16 ? float32_to_float16(scales[i]) : float32_to_bfloat16(scales[i]);
    std::memcpy(stored.data() + 2 * i, &half, 2);
  }
  std::vector<std::vector<std::byte>> parts{pack(codes, cols, rows), std::move(stored)};
  if (!matrix.spec.symmetric) {
    zeros.resize(scales.size());
    parts.push_back(pack(zeros, groups, rows));
  }
  return parts;
}

nlohmann::ordered_json to_json(const TensorSpec& spec, bool dynamic) {
  const Format& kind = format(spec.format);
  const bool mx = spec.format == "mxfp4";
  const bool groups = mx || spec.granularity == Granularity::PerGroup;
  const bool tensor = !mx && spec.granularity == Granularity::PerTensor;
  // Signed codes of 8 bits whatever they were, as in the other layouts.
  const std::string eight = kind.kind == FormatKind::Integer ? "int8" : spec.format;
  nlohmann::ordered_json json;
  json["dtype"] = mx ? "fp4" : kind.bits == 4 ? spec.format : eight;
  json["is_dynamic"] = dynamic;
  json["qscheme"] = groups ? "per_group" : tensor ? "per_tensor" : "per_channel";
  json["ch_axis"] = nlohmann::ordered_json(nullptr);
  if (groups) json["ch_axis"] = mx ? -1 : 1;
  if (!groups && !tensor) json["ch_axis"] = spec.granularity == Granularity::PerToken ? 1 : 0;
  json["group_size"] = nlohmann::ordered_json(nullptr);
  if (groups) json["group_size"] = mx ? kind.block : spec.group_size;
  json["symmetric"] = kind.kind == FormatKind::Integer ? nlohmann::ordered_json(spec.symmetric) : nullptr;
  json["round_method"] = "half_even";
  json["scale_type"] = "float";
  json["scale_format"] = mx ? nlohmann::ordered_json("e8m0") : nullptr;
  json["scale_calculation_mode"] = mx ? nlohmann::ordered_json("even") : nullptr;
  json["observer_cls"] = mx       ? "PerBlockMXObserver"
                         : groups ? "PerGroupMinMaxObserver"
                         : tensor ? "PerTensorMinMaxObserver"
                                  : "PerChannelMinMaxObserver";
  return json;
}

Args parse(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorCode::InvalidConfig, where, "an object is needed");
  const std::string type = text(json, "dtype"), scheme = text(json, "qscheme");
  Args args;
  constexpr std::string_view kKnown[] = {"int4", "uint4", "int8", "fp8_e4m3", "fp4"};
  if (std::ranges::find(kKnown, type) == std::end(kKnown)) {
    fail(ErrorCode::Unsupported, where, "the dtype '{}' cannot be read; int4, uint4, int8, fp8_e4m3 and fp4 can", type);
  }
  args.is_float = type.starts_with("fp");
  args.bits = type.ends_with("4") ? 4 : 8;
  if (type == "fp8_e4m3") args.bits = 8;
  args.is_unsigned = type == "uint4";
  args.symmetric = !json.contains("symmetric") || json["symmetric"] != false;
  args.dynamic = json.contains("is_dynamic") && json["is_dynamic"] == true;
  if (scheme == "per_tensor") {
    args.strategy = Args::Strategy::Tensor;
  } else if (scheme == "per_channel") {
    args.strategy = args.dynamic ? Args::Strategy::Token : Args::Strategy::Channel;
  } else if (scheme == "per_group") {
    args.strategy = Args::Strategy::Group;
    const auto size = json.find("group_size");
    if (size == json.end() || !size->is_number_integer() || *size < 1) {
      fail(ErrorCode::InvalidConfig, where, "'group_size' must be a number above 0");
    }
    args.group_size = size->get<int64_t>();
  } else {
    fail(ErrorCode::Unsupported, where, "the qscheme '{}'; per_tensor, per_channel and per_group can be read", scheme);
  }
  if (args.is_float && args.bits == 4 && args.group_size != 32) {
    fail(ErrorCode::Unsupported, where, "fp4 in groups of {}; of 32 (mxfp4) it can be read", args.group_size);
  }
  return args;
}

Shape weight_shape(const Args& args, const FindPart& find, const std::string& where) {
  const Tensor& codes = needed(find, "weight", where);
  if (codes.rank() != 2) fail(ErrorCode::CorruptFile, where, "'weight' is no matrix");
  const int64_t a = codes.shape()[0], b = codes.shape()[1];
  if (args.bits == 8) return {a, b};
  return args.is_float ? Shape{a, b * 2} : Shape{b * 8, a};
}

Tensor decode(const Args& args, bool reordered, const FindPart& find, const std::string& where) {
  if (args.is_float || args.bits == 8) {
    return ct::decode(
        args, like(args),
        [&](const std::string& suffix) { return find(suffix == "weight_packed" ? "weight" : suffix); }, where);
  }
  const Shape shape = weight_shape(args, find, where);
  const int64_t rows = shape[0], cols = shape[1];
  const int64_t group = args.strategy == Args::Strategy::Group ? args.group_size : std::max<int64_t>(1, cols);
  const int64_t groups = (cols + group - 1) / group;
  const Tensor& words = needed(find, "weight", where);
  expect(words, DType::Int32, {cols, rows / 8}, "weight", where);
  const Tensor& stored = needed(find, "weight_scale", where);
  expect(stored, stored.type(), {groups, rows}, "weight_scale", where);
  const std::vector<float> scales = stored.to_float();
  const std::vector<int> codes = unpack(words, reordered, !args.is_unsigned);
  std::vector<int> zeros(scales.size());
  if (!args.symmetric) {
    const Tensor& packed = needed(find, "weight_zero_point", where);
    expect(packed, DType::Int32, {groups, rows / 8}, "weight_zero_point", where);
    zeros = unpack(packed, reordered, !args.is_unsigned);
  }
  std::vector<float> values(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const auto at = static_cast<size_t>(c / group * rows + r);
      values[static_cast<size_t>(r * cols + c)] =
          static_cast<float>(codes[static_cast<size_t>(c * rows + r)] - zeros[at]) * scales[at];
    }
  }
  return Tensor::of<float>(shape, values);
}

}  // namespace kaon::quark
