// fp8, fp6 and fp4 against tests/data/ml_dtypes.txt, which says how ml_dtypes (not saturating) and ONNX's Cast
// (saturating) encode every float32: a code holds from one listed bit pattern to the next.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "numerics/half.h"
#include "numerics/reference.h"

namespace kaon {
namespace {

struct Piece {
  uint32_t first;
  uint32_t code;
};

struct Oracle {
  std::map<std::string, std::vector<uint32_t>> decode;
  std::map<std::string, std::vector<Piece>> encode, saturate;
};

Oracle read_oracle() {
  Oracle oracle;
  std::ifstream file(KAON_SOURCE_DIR "/tests/data/ml_dtypes.txt");
  EXPECT_TRUE(file);
  std::string line, kind, name;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    if (line.starts_with('>')) {
      words.ignore(1) >> kind >> name;
      continue;
    }
    uint32_t first = 0, code = 0;
    words >> std::hex >> first;
    if (kind == "decode") {
      oracle.decode[name].push_back(first);
      continue;
    }
    words >> code;
    (kind == "encode" ? oracle.encode : oracle.saturate)[name].push_back({first, code});
  }
  return oracle;
}

const Oracle& oracle() {
  static const Oracle loaded = read_oracle();
  return loaded;
}

uint32_t expected_code(const std::vector<Piece>& pieces, uint32_t bits) {
  const auto next = std::upper_bound(pieces.begin(), pieces.end(), bits,
                                     [](uint32_t value, const Piece& piece) { return value < piece.first; });
  return (next - 1)->code;
}

/// float32 bit patterns: every float16, and both ends and the middle of every piece.
std::vector<uint32_t> inputs(const std::vector<Piece>& pieces) {
  std::vector<uint32_t> bits;
  for (uint32_t half = 0; half < 0x10000; ++half) {
    bits.push_back(std::bit_cast<uint32_t>(float16_to_float32(static_cast<uint16_t>(half))));
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    const uint32_t last = i + 1 < pieces.size() ? pieces[i + 1].first - 1 : 0xffffffffu;
    bits.insert(bits.end(), {pieces[i].first, last, pieces[i].first + (last - pieces[i].first) / 2});
  }
  return bits;
}

void check_encode(const std::string& name, const std::vector<Piece>& pieces, bool saturate) {
  const Format& f = format(name);
  const QuantizeOptions options{.saturate = saturate};
  const std::vector<uint32_t> bits = inputs(pieces);
  std::vector<float> values(bits.size());
  for (size_t i = 0; i < bits.size(); ++i) values[i] = std::bit_cast<float>(bits[i]);
  std::vector<std::byte> codes(values.size());
  const int64_t shape[] = {std::ssize(values)};
  quantize(values, codes, f, {Tiling::per_tensor(shape), {1.0f}, {}}, options);
  for (size_t i = 0; i < bits.size(); ++i) {
    // ml_dtypes turns NaN into a zero of the opposite sign where the format has none; ours is +0.
    const bool own_rule = std::isnan(values[i]) && f.specials == FloatSpecials::Finite;
    const uint32_t expected = own_rule ? 0 : expected_code(pieces, bits[i]);
    ASSERT_EQ(reference::encode(f, values[i], options), expected) << name << " of " << values[i];
    ASSERT_EQ(static_cast<uint32_t>(codes[i]), expected) << name << " of " << values[i];
  }
}

TEST(MlDtypes, TableIsComplete) {
  EXPECT_EQ(oracle().decode.size(), 8u);
  EXPECT_EQ(oracle().encode.size(), 7u);
  EXPECT_EQ(oracle().saturate.size(), 4u);
  for (const auto& [name, values] : oracle().decode) {
    EXPECT_EQ(values.size(), name == "e8m0" ? 256u : 1u << format(name).bits) << name;
  }
}

TEST(MlDtypes, Decode) {
  for (const auto& [name, values] : oracle().decode) {
    if (name == "e8m0") continue;
    for (uint32_t code = 0; code < values.size(); ++code) {
      const auto value = static_cast<float>(reference::decode(format(name), code));
      const float expected = std::bit_cast<float>(values[code]);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << name << " " << code;
      } else {
        EXPECT_EQ(std::bit_cast<uint32_t>(value), values[code]) << name << " " << code;
      }
    }
  }
}

TEST(MlDtypes, E8M0Decode) {
  // An element of value 1 in blocks with every scale shows the scale itself.
  const Format& f = format("mxfp4");
  BlockTensor tensor{{256 * 32}, 0, std::vector<std::byte>(256 * 32, std::byte{2}), std::vector<std::byte>(256), 1};
  for (int code = 0; code < 256; ++code) tensor.scales[code] = static_cast<std::byte>(code);
  std::vector<float> out(256 * 32), fast(256 * 32);
  reference::dequantize_blocks(tensor, out, f);
  dequantize_blocks(tensor, fast, f);
  const std::vector<uint32_t>& values = oracle().decode.at("e8m0");
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(std::bit_cast<uint32_t>(out[code * 32]), values[code]) << code;
    EXPECT_EQ(std::bit_cast<uint32_t>(fast[code * 32]), values[code]) << code;
  }
  EXPECT_TRUE(std::isnan(out[255 * 32]) && std::isnan(fast[255 * 32]) && std::isnan(std::bit_cast<float>(values[255])));
}

TEST(MlDtypes, EncodeWithoutSaturation) {
  for (const auto& [name, pieces] : oracle().encode) check_encode(name, pieces, false);
}

TEST(MlDtypes, EncodeSaturatingIsOnnxCast) {
  for (const auto& [name, pieces] : oracle().saturate) check_encode(name, pieces, true);
  // fp6 and fp4 have no other way than to saturate.
  for (const char* name : {"fp6_e3m2", "fp6_e2m3", "fp4_e2m1"}) check_encode(name, oracle().encode.at(name), true);
}

}  // namespace
}  // namespace kaon
