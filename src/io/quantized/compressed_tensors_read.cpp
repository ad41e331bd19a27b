#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parallel.h"
#include "io/quantized/bits.h"
#include "io/quantized/compressed_tensors.h"
#include "numerics/float_codec.h"

namespace kaon::compressed_tensors {

namespace {

constexpr const char* kPacked = "pack-quantized";

bool is_fp4(const std::string& layout) { return layout.find("fp4") != std::string::npos; }
bool is_packed(const std::string& layout) { return layout == kPacked || is_fp4(layout); }

const Tensor& needed(const FindPart& find, const char* suffix, const std::string& where) {
  if (const Tensor* tensor = find(suffix)) return *tensor;
  fail(ErrorCode::CorruptFile, where, "the tensor '{}' is missing", suffix);
}

int64_t integer(const nlohmann::json& args, const char* key, int64_t least, int64_t most, const std::string& where) {
  const auto it = args.find(key);
  if (it == args.end() || !it->is_number_integer() || it->get<int64_t>() < least || it->get<int64_t>() > most) {
    fail(ErrorCode::InvalidConfig, where, "'{}' must be a number from {} to {}", key, least, most);
  }
  return it->get<int64_t>();
}

std::string text(const nlohmann::json& args, const char* key, const char* otherwise) {
  const auto it = args.find(key);
  return it != args.end() && it->is_string() ? it->get<std::string>() : otherwise;
}

Args::Strategy strategy_of(const nlohmann::json& args, const std::string& where) {
  const std::string name =
      text(args, "strategy", args.contains("group_size") && args["group_size"].is_number() ? "group" : "tensor");
  constexpr std::pair<const char*, Args::Strategy> kNames[] = {
      {"tensor", Args::Strategy::Tensor}, {"channel", Args::Strategy::Channel},
      {"group", Args::Strategy::Group},   {"block", Args::Strategy::Block},
      {"token", Args::Strategy::Token},   {"tensor_group", Args::Strategy::TensorGroup}};
  for (const auto& [known, strategy] : kNames) {
    if (name == known) return strategy;
  }
  fail(ErrorCode::Unsupported, where, "the strategy '{}' is not known", name);
}

/// Scales or zero points, and which of them an element takes.
struct Grid {
  std::vector<float> values;
  int64_t rows = 1, cols = 1;          ///< of the grid
  int64_t each_row = 1, each_col = 1;  ///< elements that one of them serves

  float at(int64_t row, int64_t col) const {
    return values[static_cast<size_t>(std::min(row / each_row, rows - 1) * cols + std::min(col / each_col, cols - 1))];
  }
};

Grid grid_of(const Args& args, std::vector<float> values, int64_t rows, int64_t cols, const std::string& where) {
  using Strategy = Args::Strategy;
  Grid grid;
  grid.each_row = rows;
  grid.each_col = cols;
  if (args.strategy == Strategy::Block) {
    grid.each_row = args.block_rows;
    grid.each_col = args.block_cols;
  } else if (args.strategy != Strategy::Tensor) {
    grid.each_row = 1;
    if (args.strategy != Strategy::Channel) grid.each_col = args.group_size;
  }
  const auto count = [](int64_t all, int64_t each) {
    return each > 0 ? std::max<int64_t>(1, (all + each - 1) / each) : 1;
  };
  grid.rows = count(rows, grid.each_row);
  grid.cols = count(cols, grid.each_col);
  if (std::ssize(values) != grid.rows * grid.cols) {
    fail(ErrorCode::CorruptFile, where, "{} scales or zero points where {} x {} are needed", values.size(), grid.rows,
         grid.cols);
  }
  grid.each_row = std::max<int64_t>(1, grid.each_row);
  grid.each_col = std::max<int64_t>(1, grid.each_col);
  grid.values = std::move(values);
  return grid;
}

std::vector<float> power_of_two_scales(const Tensor& tensor, const std::string& where) {
  if (tensor.type() != DType::UInt8 && tensor.type() != DType::Float8E8M0) return tensor.to_float();
  std::vector<float> values;
  for (const std::byte byte : tensor.bytes()) {
    if (byte == std::byte{0xff}) fail(ErrorCode::CorruptFile, where, "a scale that is no number");
    values.push_back(std::ldexp(1.0F, static_cast<int>(byte) - 127));
  }
  return values;
}

/// Zero points of [rows, groups], packed along the rows or not.
std::vector<float> zero_points(const Args& args, const Tensor& tensor, int64_t rows, int64_t groups,
                               const std::string& where) {
  if (tensor.type() != DType::Int32 || tensor.size() == rows * groups) return tensor.to_float();
  const int64_t words = packed_words(rows, args.bits);
  if (tensor.shape() != Shape{words, groups}) {
    fail(ErrorCode::CorruptFile, where, "'weight_zero_point' has the shape {}; {} is needed", to_string(tensor.shape()),
         to_string(Shape{words, groups}));
  }
  const auto* data = reinterpret_cast<const uint32_t*>(tensor.bytes().data());
  std::vector<std::byte> codes(static_cast<size_t>(rows * groups));
  for (int64_t group = 0; group < groups; ++group) {
    unpack_words(data + group, rows, args.bits, std::span(codes).subspan(static_cast<size_t>(group)), groups, groups);
  }
  std::vector<float> values;
  for (const std::byte code : codes)
    values.push_back(static_cast<float>(static_cast<int>(code) - (1 << (args.bits - 1))));
  return values;
}

}  // namespace

Args parse_args(const nlohmann::json& json, const std::string& where) {
  if (!json.is_object()) fail(ErrorCode::InvalidConfig, where, "an object is needed");
  Args args;
  args.bits = static_cast<int>(json.contains("num_bits") ? integer(json, "num_bits", 1, 8, where) : 8);
  const std::string type = text(json, "type", "int");
  if (type != "int" && type != "float")
    fail(ErrorCode::Unsupported, where, "the type '{}'; int and float can be read", type);
  args.is_float = type == "float";
  args.symmetric = !json.contains("symmetric") || json["symmetric"] != false;
  args.strategy = strategy_of(json, where);
  if (args.strategy == Args::Strategy::Group || args.strategy == Args::Strategy::TensorGroup) {
    args.group_size = integer(json, "group_size", 1, int64_t{1} << 40, where);
  }
  if (args.strategy == Args::Strategy::Block) {
    const auto it = json.find("block_structure");
    if (it == json.end() || !it->is_array() || it->size() != 2 || !(*it)[0].is_number_integer() ||
        !(*it)[1].is_number_integer() || (*it)[0] < 1 || (*it)[1] < 1) {
      fail(ErrorCode::InvalidConfig, where, "'block_structure' must be two numbers above 0");
    }
    args.block_rows = (*it)[0].get<int64_t>();
    args.block_cols = (*it)[1].get<int64_t>();
  }
  if (const auto it = json.find("dynamic"); it != json.end()) {
    args.local = *it == "local";
    args.dynamic = args.local || *it == true;
  }
  return args;
}

TensorSpec input_spec(const Args& args, const std::string& where) {
  using Strategy = Args::Strategy;
  TensorSpec spec;
  spec.symmetric = args.symmetric;
  spec.axis = -1;
  if (args.is_float && args.bits == 4 && args.group_size == 16) {
    spec.format = "nvfp4";
    return spec;
  }
  if (args.is_float && args.group_size == 32) {
    spec.format = args.bits == 4 ? "mxfp4" : "mxfp8_e4m3";
    return spec;
  }
  if (args.is_float && args.bits == 8) {
    spec.format = "fp8_e4m3";
  } else if (!args.is_float && (args.bits == 8 || args.bits == 4)) {
    spec.format = args.bits == 8 ? "int8" : "int4";
  } else {
    fail(ErrorCode::Unsupported, where, "inputs of {} bits", args.bits);
  }
  switch (args.strategy) {
    case Strategy::Tensor: spec.granularity = Granularity::PerTensor; break;
    case Strategy::Token: spec.granularity = Granularity::PerToken; break;
    case Strategy::Group:
      spec.granularity = Granularity::PerGroup;
      spec.group_size = args.group_size;
      break;
    default: fail(ErrorCode::Unsupported, where, "inputs with a scale for each channel or block");
  }
  if (!args.dynamic && args.strategy != Strategy::Tensor) {
    fail(ErrorCode::Unsupported, where, "static inputs with more than one scale");
  }
  return spec;
}

bool holds_weight(const std::string& layout, const FindPart& find) {
  return find(is_packed(layout) ? "weight_packed" : "weight_scale") != nullptr;
}

Shape weight_shape(const std::string& layout, const FindPart& find, const std::string& where) {
  Shape shape;
  if (layout == kPacked) {
    for (const int64_t dim : needed(find, "weight_shape", where).to_int64()) shape.push_back(dim);
  } else {
    shape = needed(find, is_fp4(layout) ? "weight_packed" : "weight", where).shape();
    if (is_fp4(layout) && !shape.empty()) shape.back() *= 2;
  }
  if (shape.size() != 2 || shape[0] < 0 || shape[1] < 0) {
    fail(ErrorCode::CorruptFile, where, "a weight of the shape {}; matrices can be read", to_string(shape));
  }
  return shape;
}

Tensor decode(const Args& args, const std::string& layout, const FindPart& find, const std::string& where) {
  const Shape shape = weight_shape(layout, find, where);
  const int64_t rows = shape[0], cols = shape[1];
  const bool packed = layout == kPacked;
  const Tensor& codes = needed(find, is_packed(layout) ? "weight_packed" : "weight", where);
  const DType wanted = packed           ? DType::Int32
                       : is_fp4(layout) ? DType::UInt8
                       : args.is_float  ? DType::Float8E4M3FN
                                        : DType::Int8;
  const int64_t words = packed_words(std::min(cols, int64_t{1} << 40), args.bits);
  const Shape stored = packed ? Shape{rows, words} : is_fp4(layout) ? Shape{rows, cols / 2} : shape;
  if (codes.type() != wanted || codes.shape() != stored) {
    fail(ErrorCode::CorruptFile, where, "its codes are {} {}; {} {} is needed", name_of(codes.type()),
         to_string(codes.shape()), name_of(wanted), to_string(stored));
  }
  if (find("weight_g_idx") != nullptr) {
    fail(ErrorCode::Unsupported, where, "'weight_g_idx' is there: columns in another order cannot be read");
  }
  const Grid scale = grid_of(args, power_of_two_scales(needed(find, "weight_scale", where), where), rows, cols, where);
  Grid zero;
  if (!args.symmetric && !args.is_float) {
    zero = grid_of(args, zero_points(args, needed(find, "weight_zero_point", where), scale.rows, scale.cols, where),
                   rows, cols, where);
  }
  const float global = layout.starts_with("nvfp4") ? needed(find, "weight_global_scale", where).to_float().at(0) : 1;
  std::vector<float> numbers(256);  // that codes stand for
  const FloatCodec codec(format(args.bits == 4 ? "fp4_e2m1" : "fp8_e4m3"));
  for (int code = 0; code < 256; ++code) {
    numbers[static_cast<size_t>(code)] = args.is_float ? codec.decode(static_cast<uint32_t>(code))
                                         : packed      ? static_cast<float>(code - (1 << (args.bits - 1)))
                                                       : static_cast<float>(static_cast<int8_t>(code));
  }
  const auto middle = static_cast<float>(1 << (args.bits - 1));  // of packed codes, which count from 0
  const auto decode_rows = [&](std::span<float> values, int64_t first, int64_t last) {
    std::vector<std::byte> row(static_cast<size_t>(cols));
    for (int64_t r = first; r < last; ++r) {
      const std::byte* from = codes.bytes().data();
      if (packed) {
        unpack_words(reinterpret_cast<const uint32_t*>(from) + r * words, cols, args.bits, row);
      } else if (is_fp4(layout)) {
        unpack_nibbles(from + r * cols / 2, row);
      } else {
        std::copy(from + r * cols, from + (r + 1) * cols, row.begin());
      }
      float* to = values.data() + r * cols;
      const auto* codes_of_row = reinterpret_cast<const uint8_t*>(row.data());
      for (int64_t begin = 0; begin < cols; begin += scale.each_col) {
        const float step = layout.starts_with("nvfp4") ? scale.at(r, begin) / global : scale.at(r, begin);
        const float off = zero.values.empty() ? 0 : zero.at(r, begin);
        const int64_t end = std::min(cols, begin + scale.each_col);
        if (packed) {
          for (int64_t c = begin; c < end; ++c) to[c] = (static_cast<float>(codes_of_row[c]) - middle - off) * step;
        } else {
          for (int64_t c = begin; c < end; ++c) to[c] = (numbers[codes_of_row[c]] - off) * step;
        }
      }
    }
  };
  return Tensor::filled<float>(shape, [&](std::span<float> values) {
    parallel_for(0, rows, 16, [&](int64_t first, int64_t last) { decode_rows(values, first, last); });
  });
}

}  // namespace kaon::compressed_tensors
