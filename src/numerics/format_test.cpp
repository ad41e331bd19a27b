#include "numerics/format.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(Format, TableIsInOrder) {
  const std::vector<std::string> expected = {
      "int2",         "int3",     "int4",         "int8",       "int16",      "int32",    "uint2",
      "uint3",        "uint4",    "uint8",        "uint16",     "float16",    "bfloat16", "fp8_e4m3",
      "fp8_e4m3fnuz", "fp8_e5m2", "fp8_e5m2fnuz", "fp6_e2m3",   "fp6_e3m2",   "fp4_e2m1", "mxfp8_e4m3",
      "mxfp8_e5m2",   "mxint8",   "bfp16",        "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4",    "nvfp4"};
  EXPECT_EQ(formats().names(), expected);
}

TEST(Format, NamesAndBitsAgree) {
  for (const auto& [name, f] : formats().items()) {
    EXPECT_EQ(name, f.name);
    EXPECT_EQ(f.code_bytes(), f.bits <= 8 ? 1 : f.bits / 8) << name;
    EXPECT_GT(f.smallest(), 0) << name;
  }
}

TEST(Format, KnownFacts) {
  struct Row {
    const char* name;
    double min, max, smallest;
    int onnx_type;
  };
  const Row rows[] = {
      {"int2", -2, 1, 1, 26},
      {"int3", -4, 3, 1, 0},
      {"int4", -8, 7, 1, 22},
      {"int8", -128, 127, 1, 3},
      {"int16", -32768, 32767, 1, 5},
      {"int32", -2147483648.0, 2147483647.0, 1, 6},
      {"uint2", 0, 3, 1, 25},
      {"uint3", 0, 7, 1, 0},
      {"uint4", 0, 15, 1, 21},
      {"uint8", 0, 255, 1, 2},
      {"uint16", 0, 65535, 1, 4},
      {"float16", -65504, 65504, 0x1p-24, 10},
      {"bfloat16", -0x1.fep127, 0x1.fep127, 0x1p-133, 16},
      {"fp8_e4m3", -448, 448, 0x1p-9, 17},
      {"fp8_e4m3fnuz", -240, 240, 0x1p-10, 18},
      {"fp8_e5m2", -57344, 57344, 0x1p-16, 19},
      {"fp8_e5m2fnuz", -57344, 57344, 0x1p-17, 20},
      {"fp6_e3m2", -28, 28, 0.0625, 0},
      {"fp6_e2m3", -7.5, 7.5, 0.125, 0},
      {"fp4_e2m1", -6, 6, 0.5, 23},
      {"mxfp8_e4m3", -448, 448, 0x1p-9, 0},
      {"mxfp8_e5m2", -57344, 57344, 0x1p-16, 0},
      {"mxfp6_e3m2", -28, 28, 0.0625, 0},
      {"mxfp6_e2m3", -7.5, 7.5, 0.125, 0},
      {"mxfp4", -6, 6, 0.5, 0},
      {"mxint8", -2, 127.0 / 64, 1.0 / 64, 0},
      {"nvfp4", -6, 6, 0.5, 0},
      {"bfp16", -128, 127, 1, 0},
  };
  EXPECT_EQ(std::size(rows), formats().items().size());
  for (const Row& row : rows) {
    const Format& f = format(row.name);
    EXPECT_EQ(f.min(), row.min) << row.name;
    EXPECT_EQ(f.max(), row.max) << row.name;
    EXPECT_EQ(f.smallest(), row.smallest) << row.name;
    EXPECT_EQ(f.onnx_type, row.onnx_type) << row.name;
  }
}

TEST(Format, UnknownNameSuggestsTheNearest) {
  try {
    format("mxpf4");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    EXPECT_NE(error.message().find("'mxfp4'"), std::string::npos) << error.message();
  }
}

TEST(Format, WithoutLowest) {
  EXPECT_EQ(without_lowest(format("int8")).integer_min(), -127);
  EXPECT_EQ(without_lowest(format("int8")).integer_max(), 127);
  EXPECT_EQ(without_lowest(format("uint8")).integer_min(), 0);
}

}  // namespace
}  // namespace kaon
