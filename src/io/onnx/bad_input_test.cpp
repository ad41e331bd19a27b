// Damaged, absurd and hostile files end in an error that says what is wrong, soon and in little memory.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <functional>

#include "base/error.h"
#include "io/files_test.h"
#include "io/onnx/onnx.h"
#include "io/onnx/proto_test.h"
#include "io/onnx/wire.h"

namespace kaon {
namespace {

constexpr const char* kNoError = "read without an error";

int64_t peak_kib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

std::string error_of(const std::function<void()>& read, int64_t most_kib = 64 << 10) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t before = peak_kib();
  std::string message = kNoError;
  try {
    read();
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << message;
  EXPECT_LT(peak_kib() - before, most_kib) << message;
  return message;
}

std::string error_of(const std::string& file) {
  return error_of([&] { read_onnx(bytes_of(file)); });
}

std::string error_of(const onnx::ModelProto& proto) { return error_of(proto.SerializePartialAsString()); }

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(BadInput, OtherFiles) {
  EXPECT_SAYS(error_of(std::string()), "the file is empty");
  EXPECT_SAYS(error_of(std::string("PK\x03\x04 and so on")), "looks like a zip archive");
  EXPECT_SAYS(error_of(std::string("{\"model\": 1}")), "looks like JSON");
  EXPECT_SAYS(error_of(std::string("<!DOCTYPE html><html>")), "looks like XML or HTML");
  EXPECT_SAYS(error_of(std::string("version https://git-lfs.github.com/spec/v1")), "Git LFS pointer");
  EXPECT_SAYS(error_of(std::string("\x40\0\0\0\0\0\0\0{\"weight\"", 18)), "safetensors");
  EXPECT_SAYS(error_of(std::string("ir_version: 8\n")), "text form");
  EXPECT_SAYS(error_of(std::string(1000, '\0')), "this is no ONNX file");
  EXPECT_SAYS(error_of(std::string(1000, '\xFF')), "a number longer than ten bytes");
  EXPECT_SAYS(error_of(std::string("\x08\x08")), "it has no graph");
  EXPECT_SAYS(error_of([] { read_onnx("/nowhere/m.onnx"); }), "/nowhere/m.onnx: cannot open");
  EXPECT_SAYS(error_of([] { read_onnx("/"); }), "not a regular file");
}

TEST(BadInput, TruncatedAnywhere) {
  onnx::ModelProto proto = small_model();
  add_weight(proto, 1, {16}).set_raw_data(std::string(64, 'a'));
  proto.set_producer_name("producer");
  const std::string good = proto.SerializeAsString();
  EXPECT_EQ(error_of(good), kNoError);
  for (size_t size = 0; size < good.size(); ++size) {
    // Where a prefix ends between two fields it may be a whole model.
    const std::string message = error_of(good.substr(0, size));
    onnx::ModelProto whole;
    const bool parses = whole.ParseFromString(good.substr(0, size));
    EXPECT_TRUE(message != kNoError || (parses && whole.has_graph())) << size;
  }
  EXPECT_SAYS(error_of(good.substr(0, good.size() / 2)), "truncated");
}

TEST(BadInput, TruncatedRealModel) {
  for (const auto& path : shared_models()) {
    const std::string good = read_file(path);
    for (int i = 1; i < 50; ++i) {
      const auto size = good.size() * static_cast<size_t>(i) / 50;
      const std::string message = error_of([&] { read_onnx(bytes_of(good).first(size)); });
      EXPECT_NE(message, kNoError) << path << " cut to " << size;
    }
  }
}

TEST(BadInput, Versions) {
  onnx::ModelProto proto = small_model();
  proto.set_ir_version(0);
  EXPECT_SAYS(error_of(proto), "ir_version: is 0; 1 to 14 are accepted");
  proto.set_ir_version(99);
  EXPECT_SAYS(error_of(proto), "ir_version: is 99; 1 to 14 are accepted");
  proto = small_model();
  proto.clear_opset_import();
  EXPECT_SAYS(error_of(proto), "opset_import: the model imports no opset");
  proto.add_opset_import()->set_version(0);
  EXPECT_SAYS(error_of(proto), "opset 0 of domain ''; opsets start at 1");
  proto.mutable_opset_import(0)->set_version(27);
  EXPECT_SAYS(error_of(proto), "opset 27; 1 to 26 are accepted");
  proto.mutable_opset_import(0)->set_version(13);
  auto* again = proto.add_opset_import();
  again->set_domain("ai.onnx");
  again->set_version(14);
  EXPECT_SAYS(error_of(proto), "imported with versions 13 and 14");
  proto.clear_opset_import();
  proto.add_opset_import()->set_domain("com.microsoft");
  proto.mutable_opset_import(0)->set_version(1);
  EXPECT_SAYS(error_of(proto), "Relu 'y': the model imports no opset of ONNX's own operators");
}

TEST(BadInput, Graphs) {
  onnx::ModelProto proto = small_model();
  auto& node = *proto.mutable_graph()->mutable_node(0);
  node.set_input(0, "missing");
  EXPECT_SAYS(error_of(proto), "Relu 'y': reads 'missing'");
  node.set_input(0, "y");
  EXPECT_SAYS(error_of(proto), "cycle");
  proto = small_model();
  auto& graph = *proto.mutable_graph();
  graph.mutable_node(0)->set_input(0, "b");
  auto& other = *graph.add_node();
  other.set_op_type("Abs");
  other.add_input("y");
  other.add_output("b");
  EXPECT_SAYS(error_of(proto), "the nodes form a cycle");
  proto = small_model();
  *proto.mutable_graph()->add_node() = proto.graph().node(0);
  EXPECT_SAYS(error_of(proto), "makes 'y', which exists already");
  proto = small_model();
  proto.mutable_graph()->mutable_output(0)->set_name("nothing");
  EXPECT_SAYS(error_of(proto), "output 'nothing'");
  proto = small_model();
  proto.mutable_graph()->mutable_node(0)->clear_op_type();
  EXPECT_SAYS(error_of(proto), "without an operator");
  proto = small_model();
  proto.mutable_graph()->add_sparse_initializer()->mutable_values()->set_name("s");
  EXPECT_SAYS(error_of(proto), "initializer 's': is sparse");
}

std::string weight_error(int type, std::initializer_list<int64_t> dims,
                         const std::function<void(onnx::TensorProto&)>& fill) {
  onnx::ModelProto proto = small_model();
  fill(add_weight(proto, type, dims));
  return error_of(proto);
}

TEST(BadInput, Tensors) {
  const auto raw = [](std::string data) { return [data](onnx::TensorProto& t) { t.set_raw_data(data); }; };
  EXPECT_SAYS(weight_error(1, {2}, raw("abcd")), "initializer 'w': float32 [2] takes 8 bytes, but raw_data has 4");
  EXPECT_SAYS(weight_error(1, {}, raw("")), "takes 4 bytes, but raw_data has 0");
  EXPECT_SAYS(weight_error(21, {5}, raw("ab")), "uint4 [5] takes 3 bytes, but raw_data has 2");
  EXPECT_SAYS(weight_error(1, {-1}, raw("abcd")), "initializer 'w': shape [-1]: a shape with a negative dimension");
  EXPECT_SAYS(weight_error(1, {int64_t{1} << 62}, raw("abcd")), "more than 2^48 elements");
  EXPECT_SAYS(weight_error(1, {int64_t{1} << 32, int64_t{1} << 32}, raw("")), "more than 2^48 elements");
  EXPECT_SAYS(weight_error(1, {int64_t{1} << 40}, raw("abcd")), "takes 4398046511104 bytes");
  EXPECT_SAYS(weight_error(1, {int64_t{1} << 40}, [](auto& t) { t.add_float_data(1); }),
              "entries of float_data, but 1 are there");
  EXPECT_SAYS(weight_error(8, {int64_t{1} << 40}, [](auto& t) { t.add_string_data(std::string("a")); }),
              "entries of string_data, but 1");
  EXPECT_SAYS(weight_error(8, {1}, raw("a")), "strings cannot be raw_data");
  EXPECT_SAYS(weight_error(0, {1}, raw("a")), "data type 0 is none");
  EXPECT_SAYS(weight_error(99, {1}, raw("a")), "data type 99 is none");
  EXPECT_SAYS(weight_error(1, {1}, [](auto& t) { t.add_int64_data(1); }),
              "takes 1 entries of float_data, but 0 are there");
  EXPECT_SAYS(weight_error(1, {1}, [](auto& t) { t.add_float_data(1), t.set_raw_data("abcd"); }),
              "both raw_data and typed");
  EXPECT_SAYS(weight_error(3, {1}, [](auto& t) { t.add_int32_data(300); }), "element 0 is 300, which is no int8");
  EXPECT_SAYS(weight_error(1, {1}, [](auto& t) { t.mutable_segment()->set_begin(1); }), "segments");
  onnx::ModelProto proto = small_model();
  auto& attribute = *proto.mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("value");
  attribute.set_type(onnx::AttributeProto::TENSOR);
  EXPECT_SAYS(error_of(proto), "Relu 'y' attribute 'value': a tensor attribute without a tensor");
  attribute.mutable_t()->set_data_type(1);
  EXPECT_SAYS(error_of(proto), "Relu 'y' attribute 'value': float32 [] takes 4 bytes");
}

TEST(BadInput, ExternalData) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "model");
  write_file(folder / "secret", "12345678");
  write_file(folder / "model/w.bin", "12345678");
  std::filesystem::create_symlink("../secret", folder / "model/link");
  std::filesystem::create_directory_symlink("..", folder / "model/up");
  const auto error = [&](const std::string& location, const std::string& offset = {}, const std::string& length = {}) {
    onnx::ModelProto proto = small_model();
    add_external(add_weight(proto, 1, {2}), location, offset, length);
    write_file(folder / "model/m.onnx", proto.SerializeAsString());
    return error_of([&] { read_onnx(folder / "model/m.onnx"); });
  };
  EXPECT_EQ(error("w.bin"), kNoError);
  EXPECT_SAYS(error("gone.bin"), "initializer 'w': external data 'gone.bin' cannot be opened");
  EXPECT_SAYS(error("../secret"), "'../secret' lies outside the model's folder");
  EXPECT_SAYS(error("x/../../secret"), "lies outside the model's folder");
  EXPECT_SAYS(error((folder / "secret").string()), "lies outside the model's folder");
  EXPECT_SAYS(error("/etc/passwd"), "lies outside the model's folder");
  EXPECT_SAYS(error("link"), "leads through a link");
  EXPECT_SAYS(error("up/secret"), "leads through a link");
  EXPECT_SAYS(error("."), "not a regular file");
  EXPECT_SAYS(error(""), "without a location");
  EXPECT_SAYS(error(std::string("w.bin\0x", 7)), "external data in 'w.bin?x' lies outside");
  EXPECT_SAYS(error("w.bin", "4"), "initializer 'w': needs 8 bytes at offset 4 of external data 'w.bin', which has 8");
  EXPECT_SAYS(error("w.bin", "18446744073709551615"), "at offset 18446744073709551615");
  EXPECT_SAYS(error("w.bin", "-1"), "offset is '-1', which is no byte count");
  EXPECT_SAYS(error("w.bin", "0x0"), "which is no byte count");
  EXPECT_SAYS(error("w.bin", "99999999999999999999"), "which is no byte count");
  EXPECT_SAYS(error("w.bin", "0", "4"), "float32 [2] takes 8 bytes, but its external data in 'w.bin' has length 4");
  onnx::ModelProto proto = small_model();
  add_external(add_weight(proto, 1, {2}), "w.bin");
  EXPECT_SAYS(error_of(proto), "there is no folder to look in");
}

std::string nested(int levels) {
  onnx::GraphProto inner = small_model().graph();
  for (int i = 0; i < levels; ++i) {
    onnx::GraphProto outer = small_model().graph();
    auto& attribute = *outer.mutable_node(0)->add_attribute();
    attribute.set_name("body");
    attribute.set_type(onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->Swap(&inner);
    inner.Swap(&outer);
  }
  onnx::ModelProto model = small_model();
  model.mutable_graph()->Swap(&inner);
  return model.SerializePartialAsString();
}

/// A length-delimited field, written by hand.
std::string field(int number, const std::string& content) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  size_t size = content.size();
  for (; size > 0x7F; size >>= 7) out += static_cast<char>((size & 0x7F) | 0x80);
  return out + static_cast<char>(size) + content;
}

TEST(BadInput, DeepNesting) {
  EXPECT_EQ(error_of(nested(20)), kNoError);
  EXPECT_SAYS(error_of(nested(40)), "messages nest deeper than 96 levels");
  EXPECT_SAYS(error_of(nested(300)), "messages nest deeper than 96 levels");
  // Types nest too: sequence_type.elem_type.sequence_type…
  std::string type;
  for (int i = 0; i < 2000; ++i) type = field(4, field(1, type));
  EXPECT_SAYS(error_of(field(7, field(13, field(2, type)))), "messages nest deeper than 96 levels");
}

TEST(BadInput, MillionsOfEmptyMessages) {
  // Two bytes each in the file, hundreds in memory.
  std::string nodes;
  for (int i = 0; i < (1 << 23); ++i) nodes += std::string("\x0A\0", 2);
  EXPECT_SAYS(error_of(field(7, nodes)), "more than 4194304 messages");
}

TEST(BadInput, MessagesArePrintable) {
  onnx::ModelProto proto = small_model();
  proto.mutable_graph()->mutable_node(0)->set_name(std::string("a\0b\nc", 5));
  proto.mutable_graph()->mutable_node(0)->set_input(0, std::string(1 << 20, 'x'));
  const std::string message = error_of(proto);
  EXPECT_SAYS(message, "Relu 'a?b?c': reads 'xxx");
  EXPECT_LT(message.size(), 5000U);
}

TEST(BadInput, EveryDamagedByte) {
  onnx::ModelProto proto = small_model();
  add_weight(proto, 1, {4}).set_raw_data(std::string(16, 'a'));
  auto& attribute = *proto.mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = small_model().graph();
  const std::string good = proto.SerializeAsString();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
      std::string bad = good;
      bad[at] = static_cast<char>(value);
      error_of(bad);  // an error or a model, but nothing else
    }
  }
}

}  // namespace
}  // namespace kaon
