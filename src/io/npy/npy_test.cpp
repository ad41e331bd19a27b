#include "io/npy/npy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/atomic_file.h"
#include "base/error.h"
#include "io/files_test.h"
#include "io/npy/npy_header.h"
#include "io/zip/zip.h"

namespace kaon {
namespace {

std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string text("\x93NUMPY", 6);
  text += static_cast<char>(version);
  text += '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) text += static_cast<char>(dictionary.size() >> (8 * i) & 0xFF);
  return text + dictionary + data;
}

template <typename T>
std::string raw(std::vector<T> values, bool swap = false) {
  std::string out;
  for (const T value : values) {
    std::string one(reinterpret_cast<const char*>(&value), sizeof(T));
    if (swap) std::reverse(one.begin(), one.end());
    out += one;
  }
  return out;
}

std::string error_of(const std::string& file, bool archive = false) {
  try {
    if (archive)
      read_npz(bytes_of(file));
    else
      read_npy(bytes_of(file));
  } catch (const Error& error) {
    return error.what();
  }
  return "read without an error";
}

void expect_same(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.type(), b.type());
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes()));
}

TEST(Npy, ReadsEveryVersion) {
  for (const int version : {1, 2, 3}) {
    const Tensor tensor = read_npy(bytes_of(
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", raw<float>({1, 2, 3, 4, 5, 6}), version)));
    EXPECT_EQ(tensor.shape(), (Shape{2, 3}));
    EXPECT_EQ(tensor.to_float(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  }
  EXPECT_NE(error_of(npy("{}", "", 4)).find("version 4; 1 to 3 are accepted"), std::string::npos);
}

TEST(Npy, ReadsOtherSpellings) {
  // Keys in another order, double quotes, no spaces, no trailing comma, Python 2's long integers, a scalar.
  EXPECT_EQ(
      read_npy(bytes_of(npy("{\"shape\":(2L,),\"fortran_order\":False,\"descr\":\"<i4\"}", raw<int32_t>({7, -8}))))
          .to_int64(),
      (std::vector<int64_t>{7, -8}));
  EXPECT_EQ(read_npy(bytes_of(npy("{'descr': '<i8', 'fortran_order': True, 'shape': ()}", raw<int64_t>({5})))).shape(),
            Shape{});
}

TEST(Npy, ReadsBigEndian) {
  const auto file =
      npy("{'descr': '>i4', 'fortran_order': False, 'shape': (3,), }", raw<int32_t>({1, -2, 1 << 30}, true));
  EXPECT_EQ(read_npy(bytes_of(file)).to_int64(), (std::vector<int64_t>{1, -2, 1 << 30}));
  // The two numbers of a complex element keep their places.
  const auto complex = npy("{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }", raw<float>({1.5F, -2}, true));
  float parts[2];
  std::memcpy(parts, read_npy(bytes_of(complex)).bytes().data(), sizeof parts);
  EXPECT_EQ(parts[0], 1.5F);
  EXPECT_EQ(parts[1], -2);
}

TEST(Npy, ReadsFortranOrder) {
  // Element [i, j, k] has the value 100 i + 10 j + k.
  std::vector<float> fortran, c;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) fortran.push_back(static_cast<float>(100 * i + 10 * j + k));
    }
  }
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 3; ++j) {
      for (int k = 0; k < 4; ++k) c.push_back(static_cast<float>(100 * i + 10 * j + k));
    }
  }
  const auto file = npy("{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3, 4), }", raw(fortran, true));
  EXPECT_EQ(read_npy(bytes_of(file)).to_float(), c);
  EXPECT_EQ(read_npy(bytes_of(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (0, 3), }", ""))).shape(),
            (Shape{0, 3}));
}

TEST(Npy, BoolsBecomeZeroOrOne) {
  const Tensor tensor =
      read_npy(bytes_of(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", std::string("\0\1\7", 3))));
  EXPECT_EQ(tensor.to_int64(), (std::vector<int64_t>{0, 1, 1}));
}

Tensor counting(DType type, Shape shape) {
  std::vector<std::byte> bytes(static_cast<size_t>(stored_bytes(type, element_count(shape))));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(type == DType::Bool ? i % 2 : i * 37);
  return Tensor::copy_bytes(type, std::move(shape), bytes);
}

NamedTensors one_of_each() {
  NamedTensors tensors;
  for (const DType type :
       {DType::Bool, DType::Int8, DType::UInt8, DType::Int16, DType::UInt16, DType::Int32, DType::UInt32, DType::Int64,
        DType::UInt64, DType::Float16, DType::Float32, DType::Float64, DType::Complex64, DType::Complex128}) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{2, 3, 7}, Shape{0, 4}}) {
      tensors.emplace_back(std::string(name_of(type)) + " " + to_string(shape), counting(type, shape));
    }
  }
  return tensors;
}

TEST(Npy, WritesWhatItReads) {
  const TemporaryFolder folder;
  for (const auto& [name, tensor] : one_of_each()) {
    write_npy(tensor, folder / "a.npy");
    expect_same(read_npy(folder / "a.npy"), tensor);
    expect_same(read_npy(bytes_of(read_file(folder / "a.npy"))), tensor);
    EXPECT_EQ(parse_npy_header(bytes_of(read_file(folder / "a.npy"))).data_offset % 64, 0U);
  }
  EXPECT_THROW(write_npy(counting(DType::BFloat16, {2}), folder / "b.npy"), Error);
  EXPECT_FALSE(std::filesystem::exists(folder / "b.npy"));
}

TEST(Npy, HeaderIsNumPys) {
  EXPECT_EQ(make_npy_header(DType::Float32, {2, 3}).substr(10, 60),
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  EXPECT_EQ(make_npy_header(DType::UInt8, {2}).substr(10, 58),
            "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), } ");
  EXPECT_EQ(make_npy_header(DType::Int64, {}).substr(10, 56),
            "{'descr': '<i8', 'fortran_order': False, 'shape': (), } ");
}

TEST(Npy, SaysWhatIsWrong) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "no .npy file"},
      {"PK\x03\x04", "no .npy file"},
      {std::string("\x93NUMPY", 6), "truncated"},
      {std::string("\x93NUMPY\1\0\xFF", 9), "truncated"},
      {std::string("\x93NUMPY\2\0\xFF\xFF\xFF\xFF", 12), "needs 4294967295 bytes where 0 are left"},
      {npy(good, "1234567"), "float32 [2] takes 8 bytes, but 7 follow"},
      {npy(good, "123456789"), "float32 [2] takes 8 bytes, but 9 follow"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", ""), "no number from 0"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,), }", ""), "no number from 0"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,), }", ""), "more than 2^48"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 0), }", ""), "more than 2^48"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (70000000000,), }", ""), "takes 280000000000 bytes"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),), }", ""), "no number"},
      {npy("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,), }", ""), "True or False"},
      {npy("{'descr': '<f4', 'shape': (2,), }", ""), "must have"},
      {npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", ""),
       "'descr' is unknown or given twice"},
      {npy("{'descr': '<f4", ""), "does not end"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x", ""), "follows the dictionary"},
      {npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", ""), "arrays of '|O'"},
      {npy("{'descr': '<U5', 'fortran_order': False, 'shape': (2,), }", ""), "arrays of '<U5'"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", ""), "records"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::string(1000, '(') + "), }", ""), "no number"},
  };
  for (const auto& [file, expected] : cases) {
    EXPECT_NE(error_of(file).find(expected), std::string::npos) << error_of(file) << " for " << expected;
  }
}

TEST(Npz, WritesWhatItReads) {
  const TemporaryFolder folder;
  const NamedTensors tensors = one_of_each();
  for (const auto compression : {NpzCompression::None, NpzCompression::Deflate}) {
    write_npz(tensors, folder / "a.npz", compression);
    for (const NamedTensors& again : {read_npz(folder / "a.npz"), read_npz(bytes_of(read_file(folder / "a.npz")))}) {
      ASSERT_EQ(again.size(), tensors.size());
      for (size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(again[i].first, tensors[i].first);
        expect_same(again[i].second, tensors[i].second);
      }
    }
  }
  write_npz({}, folder / "empty.npz");
  EXPECT_TRUE(read_npz(folder / "empty.npz").empty());
}

TEST(Npz, StoredArraysStayMapped) {
  const TemporaryFolder folder;
  write_npz({{"x", counting(DType::Float32, {100})}, {"yy", counting(DType::Float64, {3})}}, folder / "a.npz");
  const NamedTensors read = read_npz(folder / "a.npz");
  EXPECT_EQ(read[0].second.owner(), read[1].second.owner());
}

TEST(Npz, DeflateSaves) {
  const TemporaryFolder folder;
  const Tensor zeros = Tensor::copy_bytes(DType::Float32, {1 << 20}, std::vector<std::byte>(4 << 20));
  write_npz({{"zeros", zeros}}, folder / "a.npz", NpzCompression::Deflate);
  EXPECT_LT(std::filesystem::file_size(folder / "a.npz"), 10000U);
  expect_same(read_npz(folder / "a.npz")[0].second, zeros);
}

TEST(Zip, Zip64BothWays) {
  const TemporaryFolder folder;
  // From 100 bytes on, so that members, offsets and directory use the large form without large files.
  for (const uint64_t from : {uint64_t{0}, uint64_t{100}, uint64_t{1000}}) {
    for (const bool deflate : {false, true}) {
      std::vector<std::string> contents;
      for (const size_t size : {0, 10, 99, 100, 101, 5000})
        contents.emplace_back(size, static_cast<char>('a' + size % 7));
      AtomicFile file(folder / "a.zip");
      ZipWriter writer(file, from);
      for (const std::string& content : contents)
        writer.add(fmt::format("m{}", content.size()), "head", bytes_of(content), deflate);
      writer.finish();
      file.commit();
      const std::string bytes = read_file(folder / "a.zip");
      const auto members = list_zip(bytes_of(bytes));
      ASSERT_EQ(members.size(), contents.size());
      for (size_t i = 0; i < members.size(); ++i) {
        const std::string expected = "head" + contents[i];
        ASSERT_EQ(members[i].size, expected.size());
        if (deflate) {
          EXPECT_EQ(std::memcmp(inflate_member(members[i]).get(), expected.data(), expected.size()), 0);
        } else {
          check_stored_member(members[i]);
          EXPECT_EQ(std::memcmp(members[i].data.data(), expected.data(), expected.size()), 0);
        }
      }
    }
  }
}

TEST(Npz, EveryDamagedByteIsNoticedOrHarmless) {
  const TemporaryFolder folder;
  const Tensor tensor = counting(DType::Float32, {6});
  for (const auto compression : {NpzCompression::None, NpzCompression::Deflate}) {
    write_npz({{"x", tensor}}, folder / "a.npz", compression);
    const std::string good = read_file(folder / "a.npz");
    for (size_t at = 0; at < good.size(); ++at) {
      EXPECT_NE(error_of(good.substr(0, at), true), "read without an error") << "truncated at " << at;
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0xFF);
      try {
        const NamedTensors read = read_npz(bytes_of(bad));
        if (!read.empty()) expect_same(read[0].second, tensor);  // dates, versions, names: the array itself is whole
      } catch (const Error&) {
      }
    }
  }
}

TEST(Npz, SaysWhatIsWrong) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of("not a zip", true).find("no zip archive"), std::string::npos);
  {
    AtomicFile file(folder / "a.zip");
    ZipWriter writer(file);
    writer.add("data.pkl", "", {}, false);
    writer.finish();
    file.commit();
  }
  EXPECT_NE(error_of(read_file(folder / "a.zip"), true).find("member 'data.pkl': is no .npy array"), std::string::npos);
  write_npz({{"x", counting(DType::Float32, {6})}}, folder / "a.npz");
  std::string bad = read_file(folder / "a.npz");
  bad[bad.find("NUMPY") + 130] ^= 1;
  EXPECT_NE(error_of(bad, true).find("member 'x.npy': its data is damaged"), std::string::npos) << error_of(bad, true);
}

TEST(Npz, SharedText) {
  const std::filesystem::path path = KAON_SOURCE_DIR "/../shared/data/text/tinystories_ids.npz";
  if (!std::filesystem::exists(path)) {
    std::printf("skipped: ../shared is not beside the checkout\n");
    return;
  }
  const NamedTensors read = read_npz(path);
  ASSERT_EQ(read.size(), 2U);
  EXPECT_EQ(read[0].first, "input_ids");
  EXPECT_EQ(read[0].second.shape(), (Shape{128, 128}));
  EXPECT_EQ(read[1].first, "labels");
}

}  // namespace
}  // namespace kaon
