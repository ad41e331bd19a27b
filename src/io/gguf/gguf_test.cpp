#include "io/gguf/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "io/files_test.h"
#include "io/npy/npy.h"

namespace kaon {
namespace {

const std::filesystem::path kFile = KAON_SOURCE_DIR "/tests/data/gguf_types.gguf";

template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

std::string text(const std::string& value) { return raw<uint64_t>(value.size()) + value; }

std::string header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return "GGUF" + raw(version) + raw(tensors) + raw(keys);
}

std::string tensor(const std::string& name, const std::vector<int64_t>& dims, uint32_t type, uint64_t offset) {
  std::string row = text(name) + raw(static_cast<uint32_t>(dims.size()));
  for (const int64_t dim : dims) row += raw(dim);
  return row + raw(type) + raw(offset);
}

std::string padded(std::string file, size_t alignment = 32) {
  file.append((alignment - file.size() % alignment) % alignment, '\0');
  return file;
}

void expect_refused(const std::string& file, ErrorCode code, const std::string& message) {
  try {
    GgufFile::read(bytes_of(file));
    ADD_FAILURE() << "read without an error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

void expect_corrupt(const std::string& file, const std::string& message) {
  expect_refused(file, ErrorCode::CorruptFile, message);
}

TEST(Gguf, EveryTypeIsDequantizedToTheLastBit) {
  const GgufFile file = GgufFile::read(kFile);
  const NamedTensors expected = read_npz(KAON_SOURCE_DIR "/tests/data/gguf_types.npz");
  EXPECT_EQ(expected.size(), gguf_types().size());
  for (const auto& [name, values] : expected) {
    const GgufTensor* row = file.find(name);
    ASSERT_NE(row, nullptr) << name;
    EXPECT_EQ(row->type->name, name);
    Tensor got = file.tensor(*row);
    EXPECT_EQ(got.shape(), values.shape()) << name;
    if (got.type() == DType::BFloat16) got = Tensor::of<float>(got.shape(), got.to_float());
    EXPECT_EQ(got.type(), values.type()) << name;
    EXPECT_TRUE(std::ranges::equal(got.bytes(), values.bytes())) << name;
  }
}

TEST(Gguf, PlainTensorsStayMapped) {
  const GgufFile file = GgufFile::read(kFile);
  for (const char* name : {"F32", "F16", "BF16"}) {
    const GgufTensor* row = file.find(name);
    EXPECT_EQ(file.tensor(*row).bytes().data(), row->data.data()) << name;
  }
}

TEST(Gguf, MetadataKeepsItsKinds) {
  const GgufFile file = GgufFile::read(kFile);
  ASSERT_NE(file.get_if<std::string>("general.architecture"), nullptr);
  EXPECT_EQ(*file.get_if<std::string>("general.architecture"), "kaon-test");
  EXPECT_EQ(*file.get_if<int64_t>("test.number"), 7);
  EXPECT_EQ(*file.get_if<std::vector<std::string>>("test.words"), (std::vector<std::string>{"a", "", "ü"}));
  EXPECT_EQ(*file.get_if<std::vector<double>>("test.scores"), (std::vector<double>{0.5, -1.25}));
  EXPECT_EQ(file.get_if<double>("test.number"), nullptr);
  EXPECT_EQ(file.get_if<int64_t>("test.missing"), nullptr);
}

TEST(Gguf, ShapesComeOutermostFirst) {
  const std::string file = padded(header(1, 0) + tensor("x", {3, 2}, 0, 0)) + std::string(24, '\1');
  const GgufFile read = GgufFile::read(bytes_of(file));
  EXPECT_EQ(read.tensors().front().shape, (Shape{2, 3}));
}

TEST(Gguf, RealVocabulariesAreRead) {
  const std::filesystem::path folder = KAON_SOURCE_DIR "/../shared/models/vocab";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "../shared is not beside the checkout";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const GgufFile file = GgufFile::read(entry.path());
    const auto* tokens = file.get_if<std::vector<std::string>>("tokenizer.ggml.tokens");
    ASSERT_NE(tokens, nullptr) << entry.path();
    EXPECT_GT(tokens->size(), 10000U) << entry.path();
  }
}

TEST(Gguf, NoGgufAtAll) {
  expect_corrupt("", "it does not begin with 'GGUF'");
  expect_corrupt("GGU", "it does not begin with 'GGUF'");
  expect_corrupt("FUGG" + raw<uint32_t>(3), "it does not begin with 'GGUF'");
  expect_refused(header(0, 0, 1), ErrorCode::Unsupported, "version 1");
  expect_refused(header(0, 0, 0x03000000), ErrorCode::Unsupported, "version 50331648");
}

TEST(Gguf, EveryPrefixOfAFileIsRefused) {
  const std::string whole = read_file(kFile);
  const size_t last = whole.find_last_not_of('\0');
  for (size_t size = 0; size < last; size += 1 + size / 40) {
    EXPECT_THROW(GgufFile::read(bytes_of(whole.substr(0, size))), Error) << size;
  }
}

TEST(Gguf, NumbersThatAnnounceTooMuch) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  expect_corrupt(header(kHuge, 0), "4611686018427387904 entries");
  expect_corrupt(header(0, kHuge), "4611686018427387904 entries");
  expect_corrupt(header(0, 1) + raw(kHuge) + std::string(32, 'k'), "key 0");
  expect_corrupt(header(0, 1) + text("k") + raw<uint32_t>(8) + raw(kHuge), "key 'k'");
  for (const uint32_t element : {0U, 2U, 4U, 6U, 8U, 10U, 12U}) {
    expect_corrupt(header(0, 1) + text("k") + raw<uint32_t>(9) + raw(element) + raw(kHuge), "key 'k'");
  }
}

TEST(Gguf, WrongMetadata) {
  expect_corrupt(header(0, 1) + text("k") + raw<uint32_t>(13) + std::string(8, '\0'), "the value type 13 is unknown");
  expect_corrupt(header(0, 1) + text("k") + raw<uint32_t>(7) + "\2", "neither 0 nor 1");
  const std::string key = text("k") + raw<uint32_t>(0) + "\1";
  expect_corrupt(header(0, 2) + key + key, "key 'k': it comes twice");
  expect_refused(header(0, 1) + text("k") + raw<uint32_t>(10) + raw(UINT64_MAX), ErrorCode::Unsupported, "key 'k'");
  expect_refused(header(0, 1) + text("k") + raw<uint32_t>(9) + raw<uint32_t>(9) + raw<uint64_t>(0),
                 ErrorCode::Unsupported, "an array of arrays");
  for (const uint32_t alignment : {0U, 3U, 1U << 21}) {
    expect_corrupt(header(0, 1) + text("general.alignment") + raw<uint32_t>(4) + raw(alignment), "general.alignment");
  }
}

TEST(Gguf, WrongTensors) {
  const std::string data(64, '\0');
  const auto one = [&](const std::string& row) { return padded(header(1, 0) + row) + data; };
  expect_corrupt(one(tensor("x", {1, 1, 1, 1, 1}, 0, 0)), "5 dimensions");
  expect_corrupt(one(tensor("x", {-1}, 0, 0)), "tensor 'x'");
  expect_corrupt(one(tensor("x", {1LL << 40, 1LL << 40}, 0, 0)), "tensor 'x'");
  expect_corrupt(one(tensor("x", {17}, 0, 0)), "68 bytes at 0 reach beyond the 64 bytes");
  expect_corrupt(one(tensor("x", {1}, 0, 64)), "4 bytes at 64 reach beyond");
  expect_corrupt(one(tensor("x", {1}, 0, UINT64_MAX - 31)), "reach beyond");
  expect_corrupt(one(tensor("x", {1}, 0, 4)), "not aligned to 32");
  expect_corrupt(one(tensor("x", {31}, 2, 0)), "rows of 31 elements are no whole blocks of 32, as Q4_0 needs");
  expect_refused(one(tensor("x", {256}, 16, 0)), ErrorCode::Unsupported, "the tensor type 16 is not known; F32, F16");
  expect_corrupt(padded(header(2, 0) + tensor("x", {1}, 0, 0) + tensor("x", {1}, 0, 0)) + data, "it comes twice");
}

TEST(Gguf, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  write_file(folder / "bad.gguf", header(0, 1));
  try {
    GgufFile::read(folder / "bad.gguf");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(error.where().find("bad.gguf"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace kaon
