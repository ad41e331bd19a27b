// Every model at hand, read and written again, says the same as before.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <onnx/onnx_pb.h>

#include "base/error.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

template <typename To, typename Field>
void append(std::string& raw, const Field& field) {
  for (const auto entry : field) {
    const auto value = static_cast<To>(entry);
    raw.append(reinterpret_cast<const char*>(&value), sizeof(To));
  }
}

/// The file that the models of these tests keep external data in; read once.
struct External {
  fs::path folder;
  std::string location, bytes;
};

/// Brings typed and external data into raw_data, which the writer uses for everything but strings.
void normalize(onnx::TensorProto& tensor, External& external) {
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    size_t offset = 0, length = std::string::npos;
    for (const auto& entry : tensor.external_data()) {
      if (entry.key() == "location" && entry.value() != external.location) {
        external.location = entry.value();
        external.bytes = read_file(external.folder / external.location);
      }
      if (entry.key() == "offset") offset = std::stoull(entry.value());
      if (entry.key() == "length") length = std::stoull(entry.value());
    }
    tensor.set_raw_data(external.bytes.substr(offset, length));
    tensor.clear_external_data();
    tensor.clear_data_location();
  }
  std::string raw = tensor.raw_data();
  append<float>(raw, tensor.float_data());
  append<double>(raw, tensor.double_data());
  append<int64_t>(raw, tensor.int64_data());
  if (tensor.data_type() == onnx::TensorProto::UINT32)
    append<uint32_t>(raw, tensor.uint64_data());
  else
    append<uint64_t>(raw, tensor.uint64_data());
  switch (tensor.data_type()) {
    case 6: append<int32_t>(raw, tensor.int32_data()); break;
    case 4:
    case 5:
    case 10:
    case 16: append<uint16_t>(raw, tensor.int32_data()); break;
    default: append<uint8_t>(raw, tensor.int32_data()); break;
  }
  tensor.clear_float_data();
  tensor.clear_double_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.clear_int32_data();
  if (tensor.data_type() != onnx::TensorProto::STRING) tensor.set_raw_data(raw);
}

void normalize(onnx::GraphProto& graph, External& external) {
  for (auto& tensor : *graph.mutable_initializer()) normalize(tensor, external);
  for (auto& node : *graph.mutable_node()) {
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_t()) normalize(*attribute.mutable_t(), external);
      if (attribute.has_g()) normalize(*attribute.mutable_g(), external);
      for (auto& tensor : *attribute.mutable_tensors()) normalize(tensor, external);
      for (auto& subgraph : *attribute.mutable_graphs()) normalize(subgraph, external);
    }
  }
}

onnx::ModelProto parsed(const fs::path& path) {
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(read_file(path))) << path;
  External external{path.parent_path(), {}, {}};
  normalize(*proto.mutable_graph(), external);
  return proto;
}

void expect_same_after_writing(const fs::path& path, const fs::path& copy, int64_t inline_limit = kInlineLimit) {
  try {
    write_onnx(read_onnx(path), copy, inline_limit);
  } catch (const Error& error) {
    FAIL() << error.what();
  }
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(parsed(path), parsed(copy))) << path << "\n" << difference.substr(0, 2000);
}

TEST(Roundtrip, SharedModels) {
  const TemporaryFolder folder;
  for (const auto& path : shared_models()) expect_same_after_writing(path, folder / "copy.onnx");
}

TEST(Roundtrip, MoreModels) {
  const TemporaryFolder folder;
  for (const auto& path : more_models()) expect_same_after_writing(path, folder / "copy.onnx");
}

TEST(Roundtrip, OnnxTestData) {
  const TemporaryFolder folder;
  for (const auto& path : onnx_testdata_models()) expect_same_after_writing(path, folder / "copy.onnx");
}

TEST(Roundtrip, ExternalData) {
  const TemporaryFolder folder;
  for (const auto& path : shared_models()) {
    const fs::path copy = folder / "copy.onnx", again = folder / "again.onnx";
    expect_same_after_writing(path, copy, 1000);
    EXPECT_TRUE(fs::file_size(copy) < fs::file_size(path) || read_onnx(path).graph.initializers.empty());
    expect_same_after_writing(copy, again);       // and back inline
    expect_same_after_writing(copy, copy, 1000);  // in place, over the mapped files
  }
}

}  // namespace
}  // namespace kaon
