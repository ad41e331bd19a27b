#include "api/formats.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kaon {
namespace {

TEST(ListFormats, AgreesWithTheRegistry) {
  const auto infos = list_formats();
  ASSERT_EQ(infos.size(), formats().items().size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const auto& [name, format] = formats().items()[i];
    SCOPED_TRACE(name);
    EXPECT_EQ(infos[i].name, name);
    EXPECT_EQ(infos[i].bits, format.bits);
    EXPECT_EQ(infos[i].min, format.min());
    EXPECT_EQ(infos[i].max, format.max());
    EXPECT_EQ(infos[i].smallest, format.smallest());
    EXPECT_EQ(infos[i].onnx_type.value_or(0), format.onnx_type);
    EXPECT_EQ(infos[i].block.value_or(0), format.block);
    EXPECT_EQ(infos[i].block.has_value(), format.kind == FormatKind::Block);
    EXPECT_EQ(infos[i].scale.has_value(), format.kind == FormatKind::Block);
    EXPECT_EQ(infos[i].kind, format.kind == FormatKind::Integer ? "integer"
                             : format.kind == FormatKind::Float ? "float"
                                                                : "block");
  }
}

nlohmann::ordered_json row(const std::string& name) {
  for (const auto& entry : to_json(list_formats())) {
    if (entry["name"] == name) return entry;
  }
  return nullptr;
}

TEST(FormatsToJson, AnInteger) {
  EXPECT_EQ(row("int4"), nlohmann::ordered_json::parse(R"({"name": "int4", "bits": 4, "kind": "integer", "min": -8,
    "max": 7, "smallest": 1, "exponent_bits": null, "mantissa_bits": null, "bias": null, "element": null,
    "block": null, "scale": null, "onnx_type": 22})"));
}

TEST(FormatsToJson, AFloat) {
  EXPECT_EQ(row("fp8_e4m3"), nlohmann::ordered_json::parse(R"({"name": "fp8_e4m3", "bits": 8, "kind": "float",
    "min": -448, "max": 448, "smallest": 0.001953125, "exponent_bits": 4, "mantissa_bits": 3, "bias": 7,
    "element": null, "block": null, "scale": null, "onnx_type": 17})"));
}

TEST(FormatsToJson, ABlockOfFloats) {
  EXPECT_EQ(row("nvfp4"), nlohmann::ordered_json::parse(R"({"name": "nvfp4", "bits": 4, "kind": "block",
    "min": -6, "max": 6, "smallest": 0.5, "exponent_bits": 2, "mantissa_bits": 1, "bias": 1,
    "element": "fp4_e2m1", "block": 16, "scale": "e4m3", "onnx_type": null})"));
}

TEST(FormatsToJson, ABlockOfIntegers) {
  const auto mxint8 = row("mxint8");
  EXPECT_EQ(mxint8["element"], "int8");
  EXPECT_EQ(mxint8["scale"], "e8m0");
  EXPECT_TRUE(mxint8["bias"].is_null());
}

}  // namespace
}  // namespace kaon
