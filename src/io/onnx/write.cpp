#include <google/protobuf/io/coded_stream.h>
#include <onnx/onnx_pb.h>

#include <limits>
#include <optional>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "io/onnx/onnx.h"
#include "io/onnx/tensor_proto.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

using google::protobuf::io::CodedOutputStream;

constexpr size_t kMostProtobufBytes = std::numeric_limits<int>::max();
/// Initializers smaller than this stay in the model.
constexpr int64_t kSmallestExternal = 1024;
constexpr uint64_t kExternalAlignment = 4096;

/// Starts a message from what the reader kept of it.
template <typename P>
void start(P& proto, const std::string& extra) {
  if (!extra.empty() && !proto.ParsePartialFromString(extra)) {
    fail(ErrorCode::Internal, "", "the extra fields of a {} do not parse", proto.GetTypeName());
  }
}

/// The file beside a model that takes its large initializers.
class DataFile {
 public:
  explicit DataFile(const fs::path& path)
      : file_(std::make_unique<AtomicFile>(path)), name_(path.filename().string()) {}

  void add(const Tensor& tensor, onnx::TensorProto& proto) {
    static constexpr std::byte kZeros[kExternalAlignment]{};
    const uint64_t padding = (kExternalAlignment - size_ % kExternalAlignment) % kExternalAlignment;
    file_->write(std::span(kZeros, padding));
    size_ += padding;
    proto.set_data_location(onnx::TensorProto::EXTERNAL);
    put(proto, "location", name_);
    put(proto, "offset", std::to_string(size_));
    put(proto, "length", std::to_string(tensor.byte_size()));
    file_->write(tensor.bytes());
    size_ += static_cast<uint64_t>(tensor.byte_size());
  }

  std::unique_ptr<AtomicFile> take() { return std::move(file_); }

 private:
  static void put(onnx::TensorProto& proto, const char* key, const std::string& value) {
    auto* entry = proto.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }

  std::unique_ptr<AtomicFile> file_;
  std::string name_;
  uint64_t size_ = 0;
};

class Writer {
 public:
  explicit Writer(DataFile* data) : data_(data) {}

  static onnx::ModelProto model_without_graph(const Model& model) {
    onnx::ModelProto proto;
    start(proto, model.extra);
    proto.set_ir_version(model.ir_version);
    put_opsets(model, proto);
    if (!model.producer_name.empty()) proto.set_producer_name(model.producer_name);
    if (!model.producer_version.empty()) proto.set_producer_version(model.producer_version);
    if (!model.domain.empty()) proto.set_domain(model.domain);
    if (!model.doc.empty()) proto.set_doc_string(model.doc);
    if (model.model_version != 0) proto.set_model_version(model.model_version);
    for (const auto& [key, value] : model.metadata) {
      auto* entry = proto.add_metadata_props();
      entry->set_key(key);
      entry->set_value(value);
    }
    return proto;
  }

  void put_graph_without_initializers(const Graph& graph, onnx::GraphProto& proto) {
    start(proto, graph.extra);
    if (!graph.name.empty()) proto.set_name(graph.name);
    if (!graph.doc.empty()) proto.set_doc_string(graph.doc);
    for (const ValueInfo& value : graph.inputs) put_value(value, *proto.add_input());
    for (const ValueInfo& value : graph.outputs) put_value(value, *proto.add_output());
    for (const ValueInfo& value : graph.values) put_value(value, *proto.add_value_info());
    for (const Node& node : graph.nodes) put_node(node, *proto.add_node());
  }

  /// Everything but inline data. Returns whether the data is still to be written, as raw_data.
  bool put_initializer_header(const Initializer& initializer, onnx::TensorProto& proto) {
    start(proto, initializer.extra);
    if (!initializer.name.empty()) proto.set_name(initializer.name);
    if (!initializer.doc.empty()) proto.set_doc_string(initializer.doc);
    put_header(initializer.tensor, proto);
    if (initializer.tensor.type() == DType::String) return false;
    if (data_ == nullptr || initializer.tensor.byte_size() < kSmallestExternal) return true;
    data_->add(initializer.tensor, proto);
    return false;
  }

 private:
  static void put_opsets(const Model& model, onnx::ModelProto& proto) {
    auto missing = model.opsets;
    // Files older than imports stay without: opset 1 is what their IR version says.
    if (model.ir_version < 3 && proto.opset_import_size() == 0) {
      if (const auto it = missing.find(""); it != missing.end() && it->second == 1) missing.erase(it);
    }
    google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto> written;
    written.Swap(proto.mutable_opset_import());
    for (auto& import : written) {
      const auto it = model.opsets.find(import.domain() == "ai.onnx" ? "" : import.domain());
      if (it == model.opsets.end()) continue;
      missing.erase(it->first);
      import.set_version(it->second);
      proto.add_opset_import()->Swap(&import);
    }
    for (const auto& [domain, version] : missing) {
      auto* import = proto.add_opset_import();
      import->set_domain(domain);
      import->set_version(version);
    }
  }

  void put_graph(const Graph& graph, onnx::GraphProto& proto) {
    put_graph_without_initializers(graph, proto);
    for (const Initializer& initializer : graph.initializers) {
      auto& out = *proto.add_initializer();
      if (!put_initializer_header(initializer, out)) continue;
      out.set_raw_data(initializer.tensor.bytes().data(), initializer.tensor.bytes().size());
    }
  }

  void put_node(const Node& node, onnx::NodeProto& proto) {
    start(proto, node.extra);
    if (!node.name.empty()) proto.set_name(node.name);
    if (!node.op.empty()) proto.set_op_type(node.op);
    if (!node.domain.empty()) proto.set_domain(node.domain);
    if (!node.doc.empty()) proto.set_doc_string(node.doc);
    for (const std::string& input : node.inputs) proto.add_input(input);
    for (const std::string& output : node.outputs) proto.add_output(output);
    for (const Attribute& attribute : node.attributes) put_attribute(attribute, *proto.add_attribute());
  }

  void put_attribute(const Attribute& attribute, onnx::AttributeProto& proto) {
    start(proto, attribute.extra);
    const bool opaque = std::holds_alternative<OpaqueAttribute>(attribute.value);
    // A kind in the extra fields is an opaque one's: a value that was set since replaces all of it.
    if (!opaque && proto.has_type()) proto.Clear();
    if (!attribute.name.empty()) proto.set_name(attribute.name);
    std::visit([&](const auto& value) { put(value, proto); }, attribute.value);
  }

  void put(const OpaqueAttribute&, onnx::AttributeProto&) {}
  void put(float value, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::FLOAT);
    proto.set_f(value);
  }
  void put(int64_t value, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::INT);
    proto.set_i(value);
  }
  void put(const std::string& value, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::STRING);
    proto.set_s(value);
  }
  void put(const Tensor& value, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::TENSOR);
    put_tensor(value, *proto.mutable_t());
  }
  void put(const std::shared_ptr<Graph>& value, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::GRAPH);
    put_graph(*value, *proto.mutable_g());
  }
  void put(const std::vector<float>& values, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::FLOATS);
    proto.mutable_floats()->Assign(values.begin(), values.end());
  }
  void put(const std::vector<int64_t>& values, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::INTS);
    proto.mutable_ints()->Assign(values.begin(), values.end());
  }
  void put(const std::vector<std::string>& values, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& value : values) proto.add_strings(value);
  }
  void put(const std::vector<Tensor>& values, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::TENSORS);
    if (proto.tensors_size() != std::ssize(values)) proto.clear_tensors();
    for (int i = 0; i < std::ssize(values); ++i) {
      put_tensor(values[static_cast<size_t>(i)],
                 i < proto.tensors_size() ? *proto.mutable_tensors(i) : *proto.add_tensors());
    }
  }
  void put(const std::vector<std::shared_ptr<Graph>>& values, onnx::AttributeProto& proto) {
    proto.set_type(onnx::AttributeProto::GRAPHS);
    for (const auto& value : values) put_graph(*value, *proto.add_graphs());
  }

  static void put_value(const ValueInfo& value, onnx::ValueInfoProto& proto) {
    start(proto, value.extra);
    if (!value.name.empty()) proto.set_name(value.name);
    if (!value.doc.empty()) proto.set_doc_string(value.doc);
    if (value.type == DType::Undefined && !value.shape) return;
    auto& tensor = *proto.mutable_type()->mutable_tensor_type();
    if (value.type != DType::Undefined) tensor.set_elem_type(static_cast<int32_t>(value.type));
    if (!value.shape) {
      tensor.clear_shape();
      return;
    }
    auto& shape = *tensor.mutable_shape();
    if (shape.dim_size() != std::ssize(*value.shape)) shape.clear_dim();
    for (int i = 0; i < std::ssize(*value.shape); ++i) {
      const Dim& dim = (*value.shape)[static_cast<size_t>(i)];
      auto& out = i < shape.dim_size() ? *shape.mutable_dim(i) : *shape.add_dim();
      if (dim.value)
        out.set_dim_value(*dim.value);
      else if (!dim.symbol.empty())
        out.set_dim_param(dim.symbol);
    }
  }

  DataFile* data_;
};

size_t varint_size(size_t value) { return static_cast<size_t>(CodedOutputStream::VarintSize64(value)); }

/// Tag and length of a length-delimited field with a one-byte tag.
std::string field_head(int number, size_t length) {
  uint8_t head[11] = {static_cast<uint8_t>(number << 3 | 2)};
  const uint8_t* end = CodedOutputStream::WriteVarint64ToArray(length, head + 1);
  return {reinterpret_cast<const char*>(head), static_cast<size_t>(end - head)};
}

size_t field_size(size_t length) { return 1 + varint_size(length) + length; }

/// A model as bytes, but for the initializers' data, which is streamed from where it lies.
struct Serialized {
  struct Part {
    std::string header;  ///< TensorProto without its data
    const Tensor* raw;   ///< nullptr: no inline data
    size_t size() const {
      return header.size() + (raw == nullptr ? 0 : field_size(static_cast<size_t>(raw->byte_size())));
    }
  };
  std::string model;  ///< ModelProto without its graph
  std::string graph;  ///< GraphProto without its initializers
  std::vector<Part> initializers;

  size_t graph_size() const {
    size_t size = graph.size();
    for (const Part& part : initializers) size += field_size(part.size());
    return size;
  }
  size_t size() const { return model.size() + field_size(graph_size()); }

  void write(AtomicFile& file) const {
    file.write(model);
    file.write(field_head(onnx::ModelProto::kGraphFieldNumber, graph_size()));
    file.write(graph);
    for (const Part& part : initializers) {
      file.write(field_head(onnx::GraphProto::kInitializerFieldNumber, part.size()));
      file.write(part.header);
      if (part.raw == nullptr) continue;
      file.write(field_head(onnx::TensorProto::kRawDataFieldNumber, static_cast<size_t>(part.raw->byte_size())));
      file.write(part.raw->bytes());
    }
  }
};

std::string to_bytes(const google::protobuf::Message& proto) {
  if (proto.ByteSizeLong() > kMostProtobufBytes) {
    fail(ErrorCode::Unsupported, "", "the model takes more than 2 GiB without its initializers");
  }
  return proto.SerializePartialAsString();
}

Serialized serialize(const Model& model, DataFile* data) {
  Writer writer(data);
  Serialized out;
  out.model = to_bytes(Writer::model_without_graph(model));
  onnx::GraphProto graph;
  writer.put_graph_without_initializers(model.graph, graph);
  out.graph = to_bytes(graph);
  for (const Initializer& initializer : model.graph.initializers) {
    onnx::TensorProto proto;
    const bool raw = writer.put_initializer_header(initializer, proto);
    out.initializers.push_back({to_bytes(proto), raw ? &initializer.tensor : nullptr});
  }
  return out;
}

}  // namespace

std::vector<std::unique_ptr<AtomicFile>> draft_onnx(const Model& model, const fs::path& path, int64_t inline_limit) {
  auto file = std::make_unique<AtomicFile>(path);
  Serialized serialized = serialize(model, nullptr);
  std::optional<DataFile> data;
  if (serialized.size() > static_cast<size_t>(inline_limit)) {
    fs::path data_path = path;
    data_path += ".data";
    data.emplace(data_path);
    serialized = serialize(model, &*data);
  }
  if (serialized.size() > kMostProtobufBytes) {
    fail(ErrorCode::Unsupported, path.string(), "the model takes more than 2 GiB beside its external data");
  }
  serialized.write(*file);
  std::vector<std::unique_ptr<AtomicFile>> files;
  if (data) files.push_back(data->take());
  files.push_back(std::move(file));
  return files;
}

void write_onnx(const Model& model, const fs::path& path, int64_t inline_limit) {
  commit_together(draft_onnx(model, path, inline_limit));
}

void write_tensor_proto(const Tensor& tensor, const fs::path& path, const std::string& name) {
  onnx::TensorProto proto;
  if (!name.empty()) proto.set_name(name);
  put_tensor(tensor, proto);
  AtomicFile file(path);
  file.write(to_bytes(proto));
  file.commit();
}

}  // namespace kaon
