#include "io/gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "io/files_test.h"

namespace kaon {
namespace {

std::vector<float> some_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.003F, 0.04F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> through(const GgufType& type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / static_cast<size_t>(type.block) * static_cast<size_t>(type.bytes));
  gguf_quantize(type, values, bytes);
  if (type.dequantize == nullptr) {
    return Tensor::copy_bytes(type.plain, {std::ssize(values)}, bytes).to_float();
  }
  std::vector<float> back(values.size());
  for (size_t i = 0; i < back.size() / static_cast<size_t>(type.block); ++i) {
    type.dequantize(bytes.data() + i * static_cast<size_t>(type.bytes),
                    back.data() + i * static_cast<size_t>(type.block));
  }
  return back;
}

double lost(const std::vector<float>& a, const std::vector<float>& b) {
  double gap = 0, all = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    gap += std::pow(static_cast<double>(a[i] - b[i]), 2);
    all += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(gap / all);
}

// What each type loses of normally distributed numbers: no more than its width explains.
TEST(GgufQuantize, EveryTypeIsAsNearAsItsWidthAllows) {
  const std::pair<const char*, double> bounds[] = {{"f32", 0},       {"f16", 3e-4},   {"bf16", 3e-3}, {"q8_0", 0.006},
                                                   {"q5_0", 0.045},  {"q5_1", 0.04},  {"q4_0", 0.09}, {"q4_1", 0.08},
                                                   {"iq4_nl", 0.08}, {"mxfp4", 0.13}, {"q6_k", 0.02}, {"q5_k", 0.04},
                                                   {"q4_k", 0.078},  {"q3_k", 0.16},  {"q2_k", 0.31}};
  const std::vector<float> values = some_values(256 * 64, 3);
  for (const auto& [name, bound] : bounds) {
    const double found = lost(values, through(gguf_type(name), values));
    EXPECT_LE(found, bound) << name;
    EXPECT_GE(found, bound / 4) << name << ": the bound is of no use";
  }
}

TEST(GgufQuantize, BlocksOfOneValueAndOfZeros) {
  for (const GgufType& type : gguf_types()) {
    if (type.dequantize == nullptr || type.name == "IQ4_XS") continue;
    for (const float value : {0.0F, 1.0F, -0.5F}) {
      const std::vector<float> values(256, value);
      for (const float back : through(type, values)) {
        EXPECT_NEAR(back, value, std::abs(value) * 0.04F) << type.name << " of " << value;
      }
    }
  }
}

// By hand from the format's description: d = max / -8 with the sign of the largest, codes around 8.
TEST(GgufQuantize, TheBytesOfQ4_0) {
  std::vector<float> values(32, 0.0F);
  values[0] = -4;
  values[1] = 3.5F;
  values[16] = 1;
  values[31] = -0.24F;
  std::vector<std::byte> bytes(18);
  gguf_quantize(gguf_type("Q4_0"), values, bytes);
  EXPECT_EQ(bytes[0], std::byte{0x00});  // 0.5 as float16
  EXPECT_EQ(bytes[1], std::byte{0x38});
  EXPECT_EQ(bytes[2], std::byte{0xa0});   // -8 + 8, and element 16: 2 + 8
  EXPECT_EQ(bytes[3], std::byte{0x8f});   // 7 + 8
  EXPECT_EQ(bytes[17], std::byte{0x88});  // -0.48 is nearest to 0
}

TEST(GgufWriter, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  const std::vector<float> values = some_values(4 * 64, 5);
  const GgufMetadata metadata{{"general.architecture", std::string("kaon")},
                              {"a.count", int64_t{7}},
                              {"a.large", int64_t{1} << 40},
                              {"a.epsilon", 1e-5},
                              {"a.flag", true},
                              {"a.tokens", std::vector<std::string>{"x", "", "é"}},
                              {"a.types", std::vector<int64_t>{1, 3}},
                              {"a.scores", std::vector<double>{-1.5, 0}}};
  const GgufPlanned first{"odd", {3}, &gguf_type("F32")}, second{"matrix", {4, 64}, &gguf_type("Q8_0")};
  {
    GgufWriter writer(folder / "f.gguf", metadata, {first, second});
    const std::vector<float> odd{1, 2, 3};
    writer.write(std::as_bytes(std::span(odd)));
    EXPECT_THROW(writer.finish(), Error) << "a tensor is missing";
    std::vector<std::byte> bytes(static_cast<size_t>(second.bytes()));
    EXPECT_THROW(writer.write(std::span(bytes).first(4)), Error);
    gguf_quantize(*second.type, values, bytes);
    writer.write(bytes);
    writer.finish();
    EXPECT_FALSE(std::filesystem::exists(folder / "f.gguf"));
    writer.commit();
  }
  const GgufFile file = GgufFile::read(folder / "f.gguf");
  EXPECT_EQ(file.metadata().size(), metadata.size());
  EXPECT_EQ(*file.get_if<int64_t>("a.count"), 7);
  EXPECT_EQ(*file.get_if<int64_t>("a.large"), int64_t{1} << 40);
  EXPECT_FLOAT_EQ(static_cast<float>(*file.get_if<double>("a.epsilon")), 1e-5F);
  EXPECT_TRUE(*file.get_if<bool>("a.flag"));
  EXPECT_EQ(*file.get_if<std::vector<std::string>>("a.tokens"), (std::vector<std::string>{"x", "", "é"}));
  EXPECT_EQ(*file.get_if<std::vector<int64_t>>("a.types"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(file.tensor(*file.find("odd")).to_float(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(file.find("matrix")->shape, (Shape{4, 64}));
  EXPECT_EQ(file.tensor(*file.find("matrix")).to_float(), through(gguf_type("q8_0"), values));
}

TEST(GgufWriter, RowsMustBeWholeBlocks) {
  const TemporaryFolder folder;
  EXPECT_THROW(GgufWriter(folder / "f.gguf", {}, {{"m", {4, 48}, &gguf_type("Q4_0")}}), Error);
  EXPECT_THROW(gguf_type("q9_9"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "f.gguf"));
}

// Columns that are multiplied with larger numbers lose less, at the price of the others.
TEST(GgufWriter, ImportanceMovesTheError) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(16 * 256), importance(256);
  for (float& value : values) value = normal(generator);
  for (size_t i = 0; i < importance.size(); ++i) importance[i] = i % 7 == 0 ? 30.0F : 0.3F;
  for (const char* name : {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}) {
    const GgufType& type = gguf_type(name);
    const auto weighted_error = [&](std::span<const float> counts) {
      std::vector<std::byte> bytes(values.size() / static_cast<size_t>(type.block) * static_cast<size_t>(type.bytes));
      gguf_quantize(type, values, bytes, counts);
      std::vector<float> back(values.size());
      for (size_t i = 0; i < values.size() / static_cast<size_t>(type.block); ++i) {
        type.dequantize(bytes.data() + i * static_cast<size_t>(type.bytes),
                        back.data() + i * static_cast<size_t>(type.block));
      }
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const auto lost = static_cast<double>(values[i] - back[i]);
        sum += static_cast<double>(importance[i % importance.size()]) * lost * lost;
      }
      return sum;
    };
    EXPECT_LT(weighted_error(importance), 0.95 * weighted_error({})) << name;
  }
}

}  // namespace
}  // namespace kaon
