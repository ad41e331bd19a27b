#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "data/expect_test.h"
#include "data/sources.h"
#include "io/files_test.h"
#include "io/zip/zip.h"

// The files were written by torch.save of PyTorch 1.13; `x` in them is arange(60).reshape(5, 3, 4) / 8.
namespace kaon {
namespace {

const std::string kFolder = KAON_SOURCE_DIR "/fuzz/corpus/torch_file/";

std::vector<float> eighths() {
  std::vector<float> values(60);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 8;
  return values;
}

std::map<std::string, Tensor> read_map(const std::string& path) {
  std::map<std::string, Tensor> out;
  for (auto& [name, tensor] : read_torch_file(path)) out.emplace(name, tensor);
  return out;
}

TEST(TorchFile, Tensors) {
  for (const char* name : {"tensor.pt", "legacy.pt", "param.pt"}) {
    const NamedTensors arrays = read_torch_file(kFolder + name);
    ASSERT_EQ(arrays.size(), 1U) << name;
    EXPECT_EQ(arrays[0].first, "");
    EXPECT_EQ(arrays[0].second.shape(), (Shape{5, 3, 4})) << name;
    EXPECT_EQ(values_of<float>(arrays[0].second), eighths()) << name;
  }
}

TEST(TorchFile, Dicts) {
  for (const char* name : {"dict.pt", "legacy_dict.pt", "ordered_dict.pt"}) {
    const auto arrays = read_map(kFolder + name);
    ASSERT_EQ(arrays.size(), 2U) << name;
    EXPECT_EQ(values_of<float>(arrays.at("input")), eighths()) << name;
    EXPECT_EQ(values_of<int64_t>(arrays.at("labels")), (std::vector<int64_t>{0, 1, 2, 3, 4})) << name;
  }
  EXPECT_EQ(values_of<float>(read_map(kFolder + "proto4.pt").at("input")), eighths());
  const auto mixed = read_map(kFolder + "mixed.pt");  // and an integer, a string, a list
  ASSERT_EQ(mixed.size(), 2U);
  EXPECT_EQ(values_of<float>(mixed.at("input")), eighths());
  EXPECT_EQ(values_of<float>(mixed.at("g")), eighths());
}

TEST(TorchFile, ViewsAndTypes) {
  const auto arrays = read_map(kFolder + "views.pt");
  // x.transpose(1, 2)[1:4]
  const Tensor& view = arrays.at("input");
  ASSERT_EQ(view.shape(), (Shape{3, 4, 3}));
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      for (int64_t k = 0; k < 3; ++k) {
        EXPECT_EQ(view.as<float>()[static_cast<size_t>((i * 4 + j) * 3 + k)],
                  static_cast<float>((i + 1) * 12 + k * 4 + j) / 8);
      }
    }
  }
  EXPECT_EQ(values_of<int64_t>(arrays.at("labels")), (std::vector<int64_t>{0, 2, 4}));
  const std::vector<std::pair<std::string, DType>> types{
      {"h", DType::Float16}, {"b", DType::Bool},  {"bf", DType::BFloat16}, {"u", DType::UInt8},
      {"d", DType::Float64}, {"i", DType::Int32}, {"s", DType::Int16},     {"c", DType::Int8}};
  for (const auto& [name, type] : types) EXPECT_EQ(arrays.at(name).type(), type) << name;
  EXPECT_EQ(arrays.at("h").to_float(), eighths());
  EXPECT_EQ(arrays.at("u").to_int64()[59], 7);
  EXPECT_EQ(arrays.at("scalar").to_float(), std::vector<float>{3});
}

TEST(TorchFile, IsADataset) {
  const std::vector<ValueInfo> inputs{input_of("input", DType::Float32, {-1, 3, 4})};
  const auto dict = open_dataset(kFolder + "dict.pt", inputs);
  EXPECT_EQ(dict->size(), 5);
  ASSERT_TRUE(dict->has_labels());
  EXPECT_EQ(values_of<int64_t>(dict->read(3, 2).labels), (std::vector<int64_t>{3, 4}));
  const auto tensor = open_dataset(kFolder + "tensor.pt", inputs);
  EXPECT_FALSE(tensor->has_labels());
  EXPECT_EQ(tensor->read(4, 1).inputs.at("input").as<float>()[0], 6);
}

TEST(TorchFile, RefusesOtherThings) {
  expect_error(ErrorCode::Unsupported, "neither a tensor nor a dict", [] { read_torch_file(kFolder + "list.pt"); });
  expect_error(ErrorCode::Unsupported, "a Python object", [] { read_torch_file(kFolder + "module.pt"); });
  expect_error(ErrorCode::Unsupported, "torch.serialization._get_layout",
               [] { read_torch_file(kFolder + "sparse.pt"); });
}

/// An archive of torch.save with this pickle and one storage of four bytes.
void write_archive(const std::filesystem::path& path, const std::string& pickle) {
  AtomicFile file(path);
  ZipWriter writer(file);
  writer.add("a/data.pkl", pickle, {}, false);
  writer.add("a/data/0", "\x01\x02\x03\x04", {}, false);
  writer.finish();
  file.commit();
}

/// The pickle of a uint8 tensor on that storage; `view` pushes offset, shape and strides.
std::string pickle_of(const std::string& view, const std::string& function = "torch._utils\n_rebuild_tensor_v2\n") {
  return "\x80\x02"
         "c" +
         function + "((X\x07" + std::string(3, '\0') + "storagectorch\nByteStorage\nX\x01" + std::string(3, '\0') +
         "0X\x03" + std::string(3, '\0') + "cpuK\x04tQ" + view + "\x89Nt" + "R.";
}

TEST(TorchFile, ChecksEveryView) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& pickle) {
    write_archive(folder / "t.pt", pickle);
    return read_torch_file(folder / "t.pt");
  };
  using namespace std::string_literals;
  EXPECT_EQ(values_of<uint8_t>(read(pickle_of("K\x01K\x02\x85K\x02\x85"s))[0].second), (std::vector<uint8_t>{2, 4}));
  EXPECT_EQ(values_of<uint8_t>(read(pickle_of("K\x03K\x03\x85K\0\x85"s))[0].second), (std::vector<uint8_t>{4, 4, 4}));
  EXPECT_EQ(read(pickle_of("K\x04K\0\x85K\x01\x85"s))[0].second.size(), 0);
  const std::string bad[] = {
      "K\x02K\x02\x85K\x02\x85"s,                                   // the last element is outside
      "K\x04K\x01\x85K\x01\x85"s,                                   // the first is
      "J\xFF\xFF\xFF\xFFK\x01\x85K\x01\x85"s,                       // a negative offset
      "K\0K\x02\x85J\xFF\xFF\xFF\xFF\x85"s,                         // a negative stride
      "K\0K\x02\x85\x8A\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F\x85"s,  // a stride that overflows
  };
  for (const std::string& view : bad) {
    expect_error(ErrorCode::CorruptFile, "does not lie inside its storage", [&] { read(pickle_of(view)); });
  }
  expect_error(ErrorCode::InvalidInput, "negative dimension",
               [&] { read(pickle_of("K\0J\xFF\xFF\xFF\xFF\x85K\x01\x85"s)); });
  expect_error(ErrorCode::Unsupported, "repeats its storage",
               [&] { read(pickle_of("K\0J\xFF\xFF\xFF\x7F\x85K\0\x85"s)); });
  expect_error(ErrorCode::CorruptFile, "strides", [&] { read(pickle_of("K\0K\x02\x85)"s)); });
  expect_error(ErrorCode::Unsupported, "os.system", [&] { read(pickle_of("K\0K\x02\x85)"s, "os\nsystem\n")); });
}

TEST(TorchFile, DamagedPickles) {
  const TemporaryFolder folder;
  const std::string whole = pickle_of(std::string("K\x01K\x02\x85K\x02\x85"));
  for (size_t size = 0; size + 1 < whole.size(); ++size) {
    write_archive(folder / "t.pt", whole.substr(0, size));
    EXPECT_THROW(read_torch_file(folder / "t.pt"), Error) << size;
    // A shorter program that still stops must not find its values.
    write_archive(folder / "t.pt", whole.substr(0, size) + ".");
    EXPECT_THROW(read_torch_file(folder / "t.pt"), Error) << size;
  }
  write_archive(folder / "t.pt", "\x80\x02" + std::string(100, ')') + ".");
  expect_error(ErrorCode::Unsupported, "neither", [&] { read_torch_file(folder / "t.pt"); });
  write_archive(folder / "t.pt", ")" + std::string(100000, '\x85') + ".");
  expect_error(ErrorCode::Unsupported, "tuples inside tuples", [&] { read_torch_file(folder / "t.pt"); });
}

TEST(TorchFile, DamagedFiles) {
  const TemporaryFolder folder;
  for (const char* name : {"dict.pt", "legacy_dict.pt"}) {
    const std::string whole = read_file(kFolder + name);
    for (size_t size = 0; size < whole.size(); size += 7) {
      write_file(folder / "t.pt", whole.substr(0, size));
      EXPECT_THROW(read_torch_file(folder / "t.pt"), Error) << name << " " << size;
    }
  }
  std::string flipped = read_file(kFolder + "tensor.pt");
  flipped[flipped.find("FloatStorage")] ^= 1;
  write_file(folder / "t.pt", flipped);
  expect_error(ErrorCode::CorruptFile, "checksum", [&] { read_torch_file(folder / "t.pt"); });
  write_file(folder / "t.pt", "");
  EXPECT_THROW(read_torch_file(folder / "t.pt"), Error);
}

}  // namespace
}  // namespace kaon
