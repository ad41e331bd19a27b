#include "io/safetensors/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "io/files_test.h"

namespace kaon {
namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

std::string entry(const std::string& name, const std::string& type, const std::string& shape,
                  const std::string& offsets) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":{}}})", name, type, shape, offsets);
}

std::string object(const std::string& entries) { return fmt::format("{{{}}}", entries); }

const std::string kFourBytes(4, '\1');

void expect_refused(const std::string& file, ErrorCode code, const std::string& message) {
  try {
    read_safetensors(bytes_of(file));
    ADD_FAILURE() << "read without an error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
  }
}

void expect_corrupt(const std::string& file, const std::string& message) {
  expect_refused(file, ErrorCode::CorruptFile, message);
}

/// An object with one F32 tensor 'a' of one element.
std::string one_float(const std::string& shape, const std::string& offsets) {
  return file_of(object(entry("a", "F32", shape, offsets)), kFourBytes);
}

TEST(Safetensors, EveryTypeComesBackAsItWas) {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const DType type :
       {DType::Bool,           DType::UInt8,      DType::Int8,           DType::UInt16,     DType::Int16,
        DType::Int32,          DType::UInt32,     DType::Int64,          DType::UInt64,     DType::Float16,
        DType::BFloat16,       DType::Float32,    DType::Float64,        DType::Complex64,  DType::Float8E4M3FN,
        DType::Float8E4M3FNUZ, DType::Float8E5M2, DType::Float8E5M2FNUZ, DType::Float8E8M0, DType::Float4E2M1}) {
    std::vector<std::byte> bytes(static_cast<size_t>(stored_bytes(type, 6)));
    for (size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>(type == DType::Bool ? i % 2 : 7 * i + 1);
    tensors.emplace_back(std::string(name_of(type)), Tensor::copy_bytes(type, {2, 3}, bytes));
  }
  tensors.emplace_back("scalar", Tensor::scalar(2.5F));
  tensors.emplace_back("empty", Tensor::of<float>({0, 4}, std::vector<float>()));
  write_safetensors(tensors, folder / "all.safetensors");
  const NamedTensors read = read_safetensors(folder / "all.safetensors");
  EXPECT_EQ(read.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const auto it = std::ranges::find(read, name, [](const auto& item) { return item.first; });
    ASSERT_NE(it, read.end()) << name;
    EXPECT_EQ(it->second.type(), tensor.type()) << name;
    EXPECT_EQ(it->second.shape(), tensor.shape()) << name;
    EXPECT_TRUE(std::ranges::equal(it->second.bytes(), tensor.bytes())) << name;
  }
}

TEST(Safetensors, WritesTheBytesOfTheReferenceWriter) {
  const TemporaryFolder folder;
  write_safetensors({{"b", Tensor::of<float>({2}, std::vector<float>{1, 2})},
                     {"half", Tensor::of<int8_t>({1, 3}, std::vector<int8_t>{1, 2, 3})},
                     {"a", Tensor::scalar(3.0F)},
                     {"é", Tensor::scalar(int64_t{4})}},
                    folder / "f");
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"é":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[8,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
      R"("half":{"dtype":"I8","shape":[1,3],"data_offsets":[20,23]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  std::string data(23, '\0');
  const int64_t four = 4;
  const float floats[] = {3, 1, 2};
  std::memcpy(data.data(), &four, 8);
  std::memcpy(data.data() + 8, floats, 12);
  data.replace(20, 3, "\1\2\3");
  EXPECT_EQ(read_file(folder / "f"), file_of(padded, data));
}

TEST(Safetensors, TensorsOutliveTheCallAndKeepTheOrderOfTheData) {
  const TemporaryFolder folder;
  write_file(folder / "f", file_of(object(entry("z", "U8", "[1]", "[1,2]") + "," + entry("a", "U8", "[1]", "[0,1]") +
                                          R"(,"__metadata__":{"k":"v"})") +
                                       " ",
                                   "\5\6"));
  SafetensorsMetadata metadata{{"old", "gone"}};
  const NamedTensors tensors = read_safetensors(folder / "f", &metadata);
  EXPECT_EQ(metadata, (SafetensorsMetadata{{"k", "v"}}));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].first, "a");
  EXPECT_EQ(tensors[0].second.as<uint8_t>()[0], 5);
  EXPECT_EQ(tensors[1].second.as<uint8_t>()[0], 6);
}

TEST(Safetensors, DataThatIsNotAlignedIsCopied) {
  const TemporaryFolder folder;
  const float value = 1.25F;
  // 8 + 61 bytes: the float begins at an odd place.
  const std::string header = object(entry("a", "F32", "[1]", "[0,4]"));
  const std::string padded = header + std::string(header.size() % 2 == 0 ? 1 : 2, ' ');
  write_file(folder / "f", file_of(padded, std::string(reinterpret_cast<const char*>(&value), 4)));
  const NamedTensors tensors = read_safetensors(folder / "f");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensors[0].second.as<float>().data()) % 4, 0U);
  EXPECT_EQ(tensors[0].second.as<float>()[0], value);
}

TEST(Safetensors, AnEmptyFileOfTensors) { EXPECT_TRUE(read_safetensors(bytes_of(file_of("{}"))).empty()); }

TEST(Safetensors, ABadHeaderIsRefused) {
  expect_corrupt("", "no safetensors file: 0 bytes");
  expect_corrupt("\1\2\3", "3 bytes");
  expect_corrupt(std::string(8, '\xFF'), "bytes of header in a file of 8");
  expect_corrupt(file_of("{}").substr(0, 9), "truncated: 2 bytes of header in a file of 9");
  std::string long_header = file_of("{}");
  const uint64_t too_long = 100'000'001;
  std::memcpy(long_header.data(), &too_long, 8);
  expect_corrupt(long_header + std::string(100'000'000, ' '), "100000001 bytes of header");
  expect_corrupt(file_of(" {}"), "does not begin with '{'");
  expect_corrupt(file_of("[]"), "does not begin with '{'");
  expect_corrupt(file_of("{"), "no valid JSON at byte");
  expect_corrupt(file_of("{}{}"), "no valid JSON at byte 3");
  expect_corrupt(file_of("{\"\xFF\":{}}"), "no valid JSON");
}

TEST(Safetensors, WhatTheFormatDoesNotDefineIsRefused) {
  expect_corrupt(file_of(R"({"a":1})"), "'a': a number where the format has none");
  expect_corrupt(file_of(R"({"a":null})"), "null where the format has none");
  expect_corrupt(file_of(R"({"a":[]})"), "a list where the format has none");
  expect_corrupt(file_of(R"({"a":{"dtype":["F32"]}})"), "a list where the format has none");
  expect_corrupt(file_of(R"({"a":{"dtype":{}}})"), "an object where the format has none");
  expect_corrupt(file_of(R"({"a":{"shape":[[1]]}})"), "a list where the format has none");
  expect_corrupt(file_of(R"({"a":{"shape":"1"}})"), "a string where the format has none");
  expect_corrupt(file_of(R"({"a":{"shape":[true]}})"), "a bool where the format has none");
  expect_corrupt(file_of(R"({"a":{"color":"red"}})"), "unknown key 'color'");
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","shape":[]}})"), "needs a dtype, a shape and two data_offsets");
  expect_corrupt(file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", kFourBytes), "needs a dtype, a shape");
  expect_corrupt(file_of(R"({"__metadata__":{"a":1}})"), "a number where the format has none");
  const std::string twice = entry("a", "U8", "[0]", "[0,0]");
  expect_corrupt(file_of(object(twice + "," + twice)), "the key 'a' comes twice");
  expect_corrupt(file_of(R"({"a":{"shape":[1],"shape":[1]}})"), "the key 'shape' comes twice");
  expect_corrupt(file_of(object(entry("a", "F33", "[1]", "[0,4]")), kFourBytes), "the dtype 'F33' is unknown");
  expect_refused(file_of(object(entry("a", "F6_E2M3", "[4]", "[0,3]")), "abc"), ErrorCode::Unsupported,
                 "'F6_E2M3' is not supported");
}

TEST(Safetensors, ShapesAndOffsetsMustFit) {
  expect_corrupt(one_float("[2]", "[0,4]"), "2 elements of 32 bits, its data 4 bytes");
  expect_corrupt(one_float("[-1]", "[0,4]"), "a negative number");
  expect_corrupt(one_float("[1.0]", "[0,4]"), "no 64-bit integer");
  expect_corrupt(one_float("[4294967296,4294967296]", "[0,4]"), "'a'");
  expect_corrupt(one_float("[9223372036854775807,9223372036854775807]", "[0,4]"), "'a'");
  expect_corrupt(one_float("[18446744073709551615]", "[0,4]"), "2^63 or more");
  expect_corrupt(one_float("[1]", "[0]"), "two data_offsets");
  expect_corrupt(one_float("[1]", "[0,4,8]"), "two data_offsets");
  expect_corrupt(one_float("[1]", "[4,0]"), "no holes, no overlaps");
  expect_corrupt(one_float("[1]", "[4,8]"), "no holes, no overlaps");
  expect_corrupt(one_float("[2]", "[0,8]"), "where 0 to at most 4 was expected");
  expect_corrupt(one_float("[0]", "[0,0]"), "4 bytes follow the last tensor");
  const auto two = [](const std::string& first, const std::string& second) {
    return file_of(object(entry("a", "U8", "[2]", first) + "," + entry("b", "U8", "[2]", second)), kFourBytes);
  };
  expect_corrupt(two("[0,2]", "[1,3]"), "'b': its data lies from 1 to 3, where 2 to at most 4");
  expect_corrupt(two("[0,2]", "[0,2]"), "no overlaps");
  expect_corrupt(file_of(object(entry("a", "F4", "[3]", "[0,2]")), "ab"), "3 elements of 4 bits");
  expect_corrupt(file_of(object(entry("a", "BOOL", "[1]", "[0,1]")), "\7"), "neither 0 nor 1");
}

TEST(Safetensors, NestedDeeplyItIsRefusedAtOnce) {
  expect_corrupt(file_of("{\"a\":" + std::string(1'000'000, '[')), "a list where the format has none");
}

TEST(Safetensors, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  write_file(folder / "bad.safetensors", "xyz");
  try {
    read_safetensors(folder / "bad.safetensors");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(error.where().find("bad.safetensors"), std::string::npos);
  }
}

TEST(Safetensors, TheWriterRefusesWhatTheFormatLacks) {
  const TemporaryFolder folder;
  const auto refused = [&](const NamedTensors& tensors, ErrorCode code) {
    try {
      write_safetensors(tensors, folder / "f");
      ADD_FAILURE() << "written";
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    }
  };
  const Tensor one = Tensor::scalar(1.0F);
  refused({{"a", one}, {"a", one}}, ErrorCode::InvalidInput);
  refused({{"__metadata__", one}}, ErrorCode::InvalidInput);
  refused({{"\xFF", one}}, ErrorCode::InvalidInput);
  refused({{"a", Tensor::of_strings({1}, {"x"})}}, ErrorCode::Unsupported);
  refused({{"a", Tensor::copy_bytes(DType::Int4, {2}, bytes_of("x"))}}, ErrorCode::Unsupported);
  refused({{"a", Tensor::copy_bytes(DType::Float4E2M1, {1}, bytes_of("x"))}}, ErrorCode::InvalidInput);
  EXPECT_FALSE(std::filesystem::exists(folder / "f"));
}

}  // namespace
}  // namespace kaon
