#include "io/onnx/onnx.h"

#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "io/files_test.h"
#include "io/onnx/proto_test.h"

namespace kaon {
namespace {

Model read(const onnx::ModelProto& proto) { return read_onnx(bytes_of(proto.SerializeAsString())); }

onnx::ModelProto written(const Model& model) {
  const TemporaryFolder folder;
  write_onnx(model, folder / "m.onnx");
  onnx::ModelProto proto;
  EXPECT_TRUE(proto.ParseFromString(read_file(folder / "m.onnx")));
  return proto;
}

TEST(Onnx, ReadsTheModel) {
  onnx::ModelProto proto = small_model();
  proto.set_producer_name("me");
  proto.set_model_version(7);
  proto.set_doc_string("doc");
  auto* metadata = proto.add_metadata_props();
  metadata->set_key("k");
  metadata->set_value("v");
  auto* dim =
      proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
  dim->set_dim_param("batch");
  proto.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim();
  const Model model = read(proto);
  EXPECT_EQ(model.ir_version, 8);
  EXPECT_EQ(model.opset(), 13);
  EXPECT_EQ(model.producer_name, "me");
  EXPECT_EQ(model.model_version, 7);
  EXPECT_EQ(model.doc, "doc");
  EXPECT_EQ(model.metadata, (std::vector<std::pair<std::string, std::string>>{{"k", "v"}}));
  ASSERT_EQ(model.graph.nodes.size(), 1U);
  EXPECT_EQ(model.graph.nodes[0].op, "Relu");
  EXPECT_EQ(model.graph.inputs[0].type, DType::Float32);
  const auto& shape = *model.graph.inputs[0].shape;
  ASSERT_EQ(shape.size(), 3U);
  EXPECT_EQ(shape[0].value, 2);
  EXPECT_EQ(shape[1].symbol, "batch");
  EXPECT_FALSE(shape[2].value.has_value());
  EXPECT_TRUE(shape[2].symbol.empty());
}

TEST(Onnx, KeepsWhatItDoesNotModel) {
  onnx::ModelProto proto = small_model();
  const auto mark = [](google::protobuf::Message& message, int number) {
    message.GetReflection()->MutableUnknownFields(&message)->AddLengthDelimited(number, "from the future");
    message.GetReflection()->MutableUnknownFields(&message)->AddVarint(number + 1, 5);
  };
  auto& graph = *proto.mutable_graph();
  auto& node = *graph.mutable_node(0);
  mark(proto, 26);
  mark(graph, 16);
  mark(node, 9);
  mark(*graph.mutable_input(0), 4);
  mark(*graph.mutable_input(0)->mutable_type(), 30);
  mark(*graph.mutable_input(0)->mutable_type()->mutable_tensor_type(), 30);
  mark(*graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape(), 30);
  graph.mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_denotation(
      "DATA_BATCH");
  graph.mutable_input(0)->mutable_type()->set_denotation("IMAGE");
  node.set_domain("ai.onnx");
  node.set_doc_string("");  // there, but empty
  auto& attribute = *node.add_attribute();
  attribute.set_name("t");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  attribute.set_doc_string("an attribute's doc");
  attribute.mutable_t()->set_name("inner name");
  attribute.mutable_t()->set_data_type(1);
  attribute.mutable_t()->set_raw_data("abcd");
  mark(attribute, 40);
  mark(*attribute.mutable_t(), 16);
  auto& type = *node.add_attribute();
  type.set_name("tp");
  type.set_type(onnx::AttributeProto::TYPE_PROTO);
  type.mutable_tp()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(1);
  auto& weight = add_weight(proto, 1, {1});
  weight.set_raw_data("abcd");
  weight.set_doc_string("weights");
  mark(weight, 16);
  auto& sequence = *graph.add_value_info();
  sequence.set_name("s");
  sequence.mutable_type()->mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type()->set_elem_type(7);
  auto& negative = *graph.add_value_info();
  negative.set_name("n");
  negative.mutable_type()->mutable_tensor_type()->set_elem_type(1);
  negative.mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(-1);
  graph.add_quantization_annotation()->set_tensor_name("x");
  proto.add_functions()->set_name("f");
  proto.add_training_info()->mutable_algorithm()->set_name("training");
  proto.mutable_opset_import(0)->set_domain("ai.onnx");
  auto* second = proto.add_opset_import();
  second->set_domain("com.microsoft");
  second->set_version(1);

  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(proto, written(read(proto)))) << difference;
}

TEST(Onnx, ChangesReachTheFile) {
  onnx::ModelProto proto = small_model();
  proto.mutable_opset_import(0)->set_domain("ai.onnx");
  auto& opaque = *proto.mutable_graph()->mutable_node(0)->add_attribute();
  opaque.set_name("a");
  opaque.set_type(onnx::AttributeProto::TYPE_PROTO);
  opaque.mutable_tp()->set_denotation("gone");
  Model model = read(proto);
  model.opsets[""] = 21;
  model.opsets["com.microsoft"] = 1;
  model.ir_version = 10;
  model.graph.nodes[0].set("a", int64_t{3});
  model.graph.inputs[0].shape = {{Dim{5, ""}, Dim{std::nullopt, "n"}}};
  const onnx::ModelProto out = written(model);
  EXPECT_EQ(out.ir_version(), 10);
  ASSERT_EQ(out.opset_import_size(), 2);
  EXPECT_EQ(out.opset_import(0).domain(), "ai.onnx");
  EXPECT_EQ(out.opset_import(0).version(), 21);
  EXPECT_EQ(out.opset_import(1).domain(), "com.microsoft");
  const auto& attribute = out.graph().node(0).attribute(0);
  EXPECT_EQ(attribute.type(), onnx::AttributeProto::INT);
  EXPECT_EQ(attribute.i(), 3);
  EXPECT_FALSE(attribute.has_tp());
  EXPECT_EQ(out.graph().input(0).type().tensor_type().shape().dim(1).dim_param(), "n");
}

std::string bytes_text(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size()};
}

TEST(Onnx, EveryTypeAsRawData) {
  for (int number = 1; number <= 26; ++number) {
    const auto type = static_cast<DType>(number);
    if (type == DType::String) continue;
    onnx::ModelProto proto = small_model();
    std::string raw(static_cast<size_t>(stored_bytes(type, 15)), '\0');
    std::iota(raw.begin(), raw.end(), '\0');
    if (type == DType::Bool) std::fill(raw.begin(), raw.end(), '\1');
    add_weight(proto, number, {3, 5}).set_raw_data(raw);
    const Model model = read(proto);
    const Tensor& tensor = model.graph.initializers[0].tensor;
    EXPECT_EQ(tensor.type(), type);
    EXPECT_EQ(bytes_text(tensor), raw) << name_of(type);
    EXPECT_EQ(written(model).graph().initializer(0).raw_data(), raw);
  }
}

TEST(Onnx, TypedDataHoldsEveryType) {
  const auto expect = [](int type, std::initializer_list<int64_t> dims, const auto& fill, const std::string& raw) {
    onnx::ModelProto proto = small_model();
    fill(add_weight(proto, type, dims));
    EXPECT_EQ(bytes_text(read(proto).graph.initializers[0].tensor), raw) << "type " << type;
  };
  const auto int32s = [](std::initializer_list<int32_t> values) {
    return [values](onnx::TensorProto& tensor) { tensor.mutable_int32_data()->Assign(values.begin(), values.end()); };
  };
  using namespace std::string_literals;
  expect(
      1, {1}, [](auto& t) { t.add_float_data(1.0F); }, "\0\0\x80\x3F"s);
  expect(
      14, {1}, [](auto& t) { t.add_float_data(1.0F), t.add_float_data(0); }, "\0\0\x80\x3F\0\0\0\0"s);
  expect(
      11, {1}, [](auto& t) { t.add_double_data(1); }, "\0\0\0\0\0\0\xF0\x3F"s);
  expect(
      15, {1}, [](auto& t) { t.add_double_data(0), t.add_double_data(1); }, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xF0\x3F"s);
  expect(
      7, {1}, [](auto& t) { t.add_int64_data(-2); }, "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF"s);
  expect(
      13, {1}, [](auto& t) { t.add_uint64_data(3); }, "\3\0\0\0\0\0\0\0"s);
  expect(
      12, {2}, [](auto& t) { t.add_uint64_data(3), t.add_uint64_data(0xFFFFFFFF); }, "\3\0\0\0\xFF\xFF\xFF\xFF"s);
  expect(6, {1}, int32s({-2}), "\xFE\xFF\xFF\xFF"s);
  expect(5, {2}, int32s({-2, 300}), "\xFE\xFF\x2C\x01"s);
  expect(4, {1}, int32s({65535}), "\xFF\xFF"s);
  expect(3, {2}, int32s({-128, 127}), "\x80\x7F"s);
  expect(2, {1}, int32s({255}), "\xFF"s);
  expect(9, {2}, int32s({1, 0}), "\1\0"s);
  expect(10, {1}, int32s({0x3C00}), "\0\x3C"s);
  expect(16, {1}, int32s({0x3F80}), "\x80\x3F"s);
  for (const int type : {17, 18, 19, 20, 24}) expect(type, {2}, int32s({0x38, 0xFF}), "\x38\xFF"s);
  for (const int type : {21, 22, 23}) expect(type, {3}, int32s({0x21, 0x03}), "\x21\x03"s);
  for (const int type : {25, 26}) expect(type, {5}, int32s({0xE4, 0x01}), "\xE4\x01"s);
}

TEST(Onnx, Strings) {
  onnx::ModelProto proto = small_model();
  auto& tensor = add_weight(proto, 8, {2});
  tensor.add_string_data("a");
  tensor.add_string_data(std::string("\0\xFF", 2));
  const Model model = read(proto);
  EXPECT_EQ(model.graph.initializers[0].tensor.strings(), (std::vector<std::string>{"a", std::string("\0\xFF", 2)}));
  EXPECT_EQ(written(model).graph().initializer(0).string_data(1), std::string("\0\xFF", 2));
}

TEST(Onnx, BoolsBecomeZeroOrOne) {
  onnx::ModelProto proto = small_model();
  add_weight(proto, 9, {3}).set_raw_data(std::string("\0\1\7", 3));
  EXPECT_EQ(read(proto).graph.initializers[0].tensor.to_int64(), (std::vector<int64_t>{0, 1, 1}));
}

TEST(Onnx, EmptyTensors) {
  onnx::ModelProto proto = small_model();
  add_weight(proto, 1, {0, 4});
  EXPECT_EQ(read(proto).graph.initializers[0].tensor.size(), 0);
}

TEST(Onnx, AttributesWithoutAKind) {
  onnx::ModelProto proto = small_model();
  proto.set_ir_version(1);
  proto.clear_opset_import();
  auto& node = *proto.mutable_graph()->mutable_node(0);
  const auto add = [&](const char* name) {
    node.add_attribute()->set_name(name);
    return node.mutable_attribute(node.attribute_size() - 1);
  };
  add("i")->set_i(0);
  add("f")->set_f(2);
  add("s")->set_s("x");
  add("ints")->add_ints(4);
  add("floats")->add_floats(5);
  add("strings")->add_strings("y");
  const Model model = read(proto);
  const Node& read_node = model.graph.nodes[0];
  EXPECT_EQ(read_node.get_int("i", 9), 0);
  EXPECT_EQ(read_node.get_float("f", 9), 2);
  EXPECT_EQ(read_node.get_string("s", ""), "x");
  EXPECT_EQ(read_node.get_ints("ints"), std::vector<int64_t>{4});
  EXPECT_EQ(*read_node.get_if<std::vector<float>>("floats"), std::vector<float>{5});
  EXPECT_EQ(*read_node.get_if<std::vector<std::string>>("strings"), std::vector<std::string>{"y"});
  EXPECT_EQ(model.opset(), 1);
  EXPECT_EQ(written(model).opset_import_size(), 0);
}

TEST(Onnx, NodesOutOfOrderAreSorted) {
  onnx::ModelProto proto = small_model();
  auto& graph = *proto.mutable_graph();
  graph.mutable_node(0)->set_input(0, "t");
  auto& later = *graph.add_node();
  later.set_op_type("Abs");
  later.add_input("x");
  later.add_output("t");
  EXPECT_EQ(read(proto).graph.nodes[0].op, "Abs");
}

TEST(Onnx, ExternalDataIsMapped) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "sub");
  write_file(folder / "sub/w.bin", std::string(8, 'x') + "abcdefgh" + "tail");
  onnx::ModelProto proto = small_model();
  add_external(add_weight(proto, 1, {2}), "sub/w.bin", "8", "8");
  add_external(add_weight(proto, 1, {1}), "./sub/w.bin", "16");
  proto.mutable_graph()->mutable_initializer(1)->set_name("v");
  add_external(add_weight(proto, 6, {1}), "sub/w.bin", "9");  // not aligned: copied
  proto.mutable_graph()->mutable_initializer(2)->set_name("u");
  write_file(folder / "m.onnx", proto.SerializeAsString());
  const Model model = read_onnx(folder / "m.onnx");
  const auto& initializers = model.graph.initializers;
  EXPECT_EQ(bytes_text(initializers[0].tensor), "abcdefgh");
  EXPECT_EQ(bytes_text(initializers[1].tensor), "tail");
  EXPECT_EQ(bytes_text(initializers[2].tensor), "bcde");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(initializers[0].tensor.bytes().data()) % 4096, 8U);
  // Written again, a small model holds its data itself.
  EXPECT_EQ(written(model).graph().initializer(0).raw_data(), "abcdefgh");
  EXPECT_EQ(written(model).graph().initializer(0).external_data_size(), 0);
}

TEST(Onnx, ExternalDataBesideALinkedModel) {
  // A download cache: the folder holds links, the files lie elsewhere, side by side.
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "blobs");
  std::filesystem::create_directories(folder / "snapshot");
  onnx::ModelProto proto = small_model();
  add_external(add_weight(proto, 1, {1}), "w.bin");
  write_file(folder / "blobs/1", proto.SerializeAsString());
  write_file(folder / "blobs/2", "abcd");
  std::filesystem::create_symlink("../blobs/1", folder / "snapshot/m.onnx");
  std::filesystem::create_symlink("../blobs/2", folder / "snapshot/w.bin");
  EXPECT_EQ(bytes_text(read_onnx(folder / "snapshot/m.onnx").graph.initializers[0].tensor), "abcd");
}

TEST(Onnx, WritesLargeModelsWithExternalData) {
  const TemporaryFolder folder;
  onnx::ModelProto proto = small_model();
  add_weight(proto, 1, {1000}).set_raw_data(std::string(4000, 'a'));
  add_weight(proto, 1, {1000}).set_raw_data(std::string(4000, 'b'));
  proto.mutable_graph()->mutable_initializer(1)->set_name("v");
  add_weight(proto, 1, {1}).set_raw_data("abcd");
  proto.mutable_graph()->mutable_initializer(2)->set_name("small");
  write_onnx(read(proto), folder / "m.onnx", 5000);
  onnx::ModelProto out;
  ASSERT_TRUE(out.ParseFromString(read_file(folder / "m.onnx")));
  EXPECT_EQ(out.graph().initializer(1).data_location(), onnx::TensorProto::EXTERNAL);
  EXPECT_EQ(out.graph().initializer(1).external_data(0).value(), "m.onnx.data");
  EXPECT_EQ(out.graph().initializer(1).external_data(1).value(), "4096");
  EXPECT_EQ(out.graph().initializer(2).raw_data(), "abcd");
  const Model again = read_onnx(folder / "m.onnx");
  EXPECT_EQ(bytes_text(again.graph.initializers[1].tensor), std::string(4000, 'b'));
  write_onnx(read(proto), folder / "inline.onnx");
  EXPECT_FALSE(std::filesystem::exists(folder / "inline.onnx.data"));
}

TEST(Onnx, TensorFiles) {
  const TemporaryFolder folder;
  const Tensor tensor = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  write_tensor_proto(tensor, folder / "t.pb", "x");
  EXPECT_EQ(read_tensor_proto(folder / "t.pb").to_float(), tensor.to_float());
  onnx::TensorProto proto;
  ASSERT_TRUE(proto.ParseFromString(read_file(folder / "t.pb")));
  EXPECT_EQ(proto.name(), "x");
  EXPECT_THROW(read_tensor_proto(bytes_of("")), Error);
}

}  // namespace
}  // namespace kaon
