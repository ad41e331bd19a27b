#include "graph/dtype.h"

#include <array>

namespace kaon {

namespace {

struct Row {
  std::string_view name;
  int bits;
};

constexpr std::array<Row, 27> kRows{{
    {"undefined", 0},      {"float32", 32},  {"uint8", 8},        {"int8", 8},           {"uint16", 16},
    {"int16", 16},         {"int32", 32},    {"int64", 64},       {"string", 0},         {"bool", 8},
    {"float16", 16},       {"float64", 64},  {"uint32", 32},      {"uint64", 64},        {"complex64", 64},
    {"complex128", 128},   {"bfloat16", 16}, {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8}, {"float8e5m2", 8},
    {"float8e5m2fnuz", 8}, {"uint4", 4},     {"int4", 4},         {"float4e2m1", 4},     {"float8e8m0", 8},
    {"uint2", 2},          {"int2", 2},
}};

}  // namespace

bool is_known(DType type) {
  const auto number = static_cast<int32_t>(type);
  return number > 0 && number < static_cast<int32_t>(kRows.size());
}

int bits_of(DType type) { return is_known(type) ? kRows[static_cast<size_t>(type)].bits : 0; }

std::string_view name_of(DType type) { return is_known(type) ? kRows[static_cast<size_t>(type)].name : "unknown"; }

}  // namespace kaon
