#include <onnx/onnx_pb.h>

#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "graph/verify.h"
#include "io/onnx/onnx.h"
#include "io/onnx/tensor_proto.h"
#include "io/onnx/wire.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

constexpr const char* kOnnxDomain = "ai.onnx";  // a longer way to write ""

/// Moves a string field out. A field that is there but empty stays, so that it is written again.
template <typename P>
std::string take(P& proto, std::string* (P::*field)(), bool (P::*has)() const, void (P::*clear)()) {
  if (!(proto.*has)()) return {};
  std::string value = std::move(*(proto.*field)());
  if (!value.empty()) (proto.*clear)();
  return value;
}

template <typename P>
std::string take_doc(P& proto) {
  return take(proto, &P::mutable_doc_string, &P::has_doc_string, &P::clear_doc_string);
}

template <typename P>
std::string take_name(P& proto) {
  return take(proto, &P::mutable_name, &P::has_name, &P::clear_name);
}

std::vector<std::string> take_strings(google::protobuf::RepeatedPtrField<std::string>& field) {
  std::vector<std::string> values;
  values.reserve(static_cast<size_t>(field.size()));
  for (std::string& value : field) values.push_back(std::move(value));
  field.Clear();
  return values;
}

std::string rest_of(const google::protobuf::Message& proto) {
  return proto.ByteSizeLong() == 0 ? std::string() : proto.SerializePartialAsString();
}

/// Drops sub-messages that have nothing left in them.
void drop_empty(google::protobuf::RepeatedPtrField<onnx::TensorProto>& tensors) {
  for (const auto& tensor : tensors) {
    if (tensor.ByteSizeLong() != 0) return;
  }
  tensors.Clear();
}

class Reader {
 public:
  explicit Reader(ExternalFiles& files) : files_(files) {}

  Model model(onnx::ModelProto& proto) {
    Model model;
    model.ir_version = proto.ir_version();
    check_ir(model.ir_version);
    proto.clear_ir_version();
    read_opsets(proto, model);
    model.producer_name = take(proto, &onnx::ModelProto::mutable_producer_name, &onnx::ModelProto::has_producer_name,
                               &onnx::ModelProto::clear_producer_name);
    model.producer_version = take(proto, &onnx::ModelProto::mutable_producer_version,
                                  &onnx::ModelProto::has_producer_version, &onnx::ModelProto::clear_producer_version);
    model.domain =
        take(proto, &onnx::ModelProto::mutable_domain, &onnx::ModelProto::has_domain, &onnx::ModelProto::clear_domain);
    model.doc = take_doc(proto);
    model.model_version = proto.model_version();
    if (model.model_version != 0) proto.clear_model_version();
    for (auto& entry : *proto.mutable_metadata_props()) {
      model.metadata.emplace_back(std::move(*entry.mutable_key()), std::move(*entry.mutable_value()));
    }
    proto.clear_metadata_props();
    model.graph = graph(*proto.mutable_graph());
    proto.clear_graph();
    model.extra = rest_of(proto);
    if (imports_onnx_) return model;
    for (const Node& node : model.graph.nodes) {
      if (node.domain.empty()) {
        fail(ErrorCode::InvalidInput, node.label(), "the model imports no opset of ONNX's own operators");
      }
    }
    return model;
  }

 private:
  static void check_ir(int64_t version) {
    if (version < 1)
      fail(ErrorCode::CorruptFile, "ir_version", "is {}; 1 to {} are accepted", version, kNewestIrVersion);
    if (version > kNewestIrVersion) {
      fail(ErrorCode::Unsupported, "ir_version", "is {}; 1 to {} are accepted", version, kNewestIrVersion);
    }
  }

  /// The imports stay in `proto` too: their order and spelling are written again.
  void read_opsets(const onnx::ModelProto& proto, Model& model) {
    for (const auto& import : proto.opset_import()) {
      const std::string domain = import.domain() == kOnnxDomain ? "" : import.domain();
      const auto [it, added] = model.opsets.emplace(domain, import.version());
      if (!added && it->second != import.version()) {
        fail(ErrorCode::InvalidInput, "opset_import", "domain '{}' is imported with versions {} and {}", domain,
             it->second, import.version());
      }
      if (import.version() < 1) {
        fail(ErrorCode::InvalidInput, "opset_import", "opset {} of domain '{}'; opsets start at 1", import.version(),
             domain);
      }
    }
    // Before IR version 3 there were no imports: opset 1 was meant.
    if (model.opsets.empty() && model.ir_version < 3) model.opsets.emplace("", 1);
    if (model.opsets.empty()) fail(ErrorCode::InvalidInput, "opset_import", "the model imports no opset");
    imports_onnx_ = model.opsets.contains("");
    if (imports_onnx_ && model.opset() > kNewestOpset) {
      fail(ErrorCode::Unsupported, "opset_import", "opset {}; 1 to {} are accepted", model.opset(), kNewestOpset);
    }
  }

  Graph graph(onnx::GraphProto& proto) {
    Graph graph;
    graph.name = take_name(proto);
    graph.doc = take_doc(proto);
    graph.inputs = values(*proto.mutable_input());
    graph.outputs = values(*proto.mutable_output());
    graph.values = values(*proto.mutable_value_info());
    if (proto.sparse_initializer_size() > 0) {
      fail(ErrorCode::Unsupported, "initializer '" + proto.sparse_initializer(0).values().name() + "'",
           "is sparse; dense initializers are accepted");
    }
    graph.initializers.reserve(static_cast<size_t>(proto.initializer_size()));
    for (auto& tensor : *proto.mutable_initializer()) graph.initializers.push_back(initializer(tensor));
    proto.clear_initializer();
    graph.nodes.reserve(static_cast<size_t>(proto.node_size()));
    for (auto& item : *proto.mutable_node()) graph.nodes.push_back(node(item));
    proto.clear_node();
    graph.extra = rest_of(proto);
    return graph;
  }

  Initializer initializer(onnx::TensorProto& proto) {
    Initializer out;
    out.name = take_name(proto);
    out.doc = take_doc(proto);
    out.tensor = take_tensor(proto, files_, "initializer '" + out.name + "'");
    out.extra = rest_of(proto);
    return out;
  }

  Node node(onnx::NodeProto& proto) {
    Node out;
    out.name = take_name(proto);
    out.doc = take_doc(proto);
    out.op =
        take(proto, &onnx::NodeProto::mutable_op_type, &onnx::NodeProto::has_op_type, &onnx::NodeProto::clear_op_type);
    // "ai.onnx" stays where it is and is written again.
    if (proto.domain() != kOnnxDomain) {
      out.domain =
          take(proto, &onnx::NodeProto::mutable_domain, &onnx::NodeProto::has_domain, &onnx::NodeProto::clear_domain);
    }
    out.inputs = take_strings(*proto.mutable_input());
    out.outputs = take_strings(*proto.mutable_output());
    out.attributes.reserve(static_cast<size_t>(proto.attribute_size()));
    for (auto& item : *proto.mutable_attribute()) out.attributes.push_back(attribute(item, out));
    proto.clear_attribute();
    out.extra = rest_of(proto);
    return out;
  }

  Attribute attribute(onnx::AttributeProto& proto, const Node& node) {
    Attribute out;
    out.name = take_name(proto);
    out.value = attribute_value(proto, node, out.name);
    out.extra = rest_of(proto);
    return out;
  }

  /// The kind that an attribute says it is; before IR version 2 it did not say, so the one field that is there.
  static onnx::AttributeProto::AttributeType kind_of(const onnx::AttributeProto& proto) {
    using A = onnx::AttributeProto;
    if (proto.has_type()) return proto.type();
    if (proto.has_f()) return A::FLOAT;
    if (proto.has_i()) return A::INT;
    if (proto.has_s()) return A::STRING;
    if (proto.has_t()) return A::TENSOR;
    if (proto.has_g()) return A::GRAPH;
    if (proto.floats_size() > 0) return A::FLOATS;
    if (proto.ints_size() > 0) return A::INTS;
    if (proto.strings_size() > 0) return A::STRINGS;
    if (proto.tensors_size() > 0) return A::TENSORS;
    if (proto.graphs_size() > 0) return A::GRAPHS;
    return A::UNDEFINED;
  }

  AttributeValue attribute_value(onnx::AttributeProto& proto, const Node& node, const std::string& name) {
    using A = onnx::AttributeProto;
    const auto kind = kind_of(proto);
    const std::string where = node.label() + " attribute '" + name + "'";
    AttributeValue value;
    switch (kind) {
      case A::FLOAT:
        value = proto.f();
        proto.clear_f();
        break;
      case A::INT:
        value = int64_t{proto.i()};
        proto.clear_i();
        break;
      case A::STRING:
        value = std::move(*proto.mutable_s());
        proto.clear_s();
        break;
      case A::TENSOR:
        if (!proto.has_t()) fail(ErrorCode::CorruptFile, where, "a tensor attribute without a tensor");
        value = take_tensor(*proto.mutable_t(), files_, where);
        if (proto.t().ByteSizeLong() == 0) proto.clear_t();
        break;
      case A::GRAPH:
        if (!proto.has_g()) fail(ErrorCode::CorruptFile, where, "a graph attribute without a graph");
        value = std::make_shared<Graph>(graph(*proto.mutable_g()));
        proto.clear_g();
        break;
      case A::FLOATS:
        value = std::vector<float>(proto.floats().begin(), proto.floats().end());
        proto.clear_floats();
        break;
      case A::INTS:
        value = std::vector<int64_t>(proto.ints().begin(), proto.ints().end());
        proto.clear_ints();
        break;
      case A::STRINGS: value = take_strings(*proto.mutable_strings()); break;
      case A::TENSORS: {
        std::vector<Tensor> tensors;
        for (auto& tensor : *proto.mutable_tensors()) tensors.push_back(take_tensor(tensor, files_, where));
        drop_empty(*proto.mutable_tensors());
        value = std::move(tensors);
        break;
      }
      case A::GRAPHS: {
        std::vector<std::shared_ptr<Graph>> graphs;
        for (auto& item : *proto.mutable_graphs()) graphs.push_back(std::make_shared<Graph>(graph(item)));
        proto.clear_graphs();
        value = std::move(graphs);
        break;
      }
      default: return OpaqueAttribute{};
    }
    proto.clear_type();
    return value;
  }

  static std::vector<ValueInfo> values(google::protobuf::RepeatedPtrField<onnx::ValueInfoProto>& protos) {
    std::vector<ValueInfo> out;
    out.reserve(static_cast<size_t>(protos.size()));
    for (auto& proto : protos) out.push_back(value(proto));
    protos.Clear();
    return out;
  }

  static ValueInfo value(onnx::ValueInfoProto& proto) {
    ValueInfo out;
    out.name = take_name(proto);
    out.doc = take_doc(proto);
    if (proto.type().has_tensor_type()) read_tensor_type(*proto.mutable_type(), out);
    if (out.type != DType::Undefined && proto.type().ByteSizeLong() == 0) proto.clear_type();
    out.extra = rest_of(proto);
    return out;
  }

  static void read_tensor_type(onnx::TypeProto& proto, ValueInfo& out) {
    auto& tensor = *proto.mutable_tensor_type();
    out.type = static_cast<DType>(tensor.elem_type());
    if (out.type != DType::Undefined) tensor.clear_elem_type();
    if (tensor.has_shape()) {
      out.shape.emplace();
      bool anything_left = onnx::TensorShapeProto::GetReflection()->GetUnknownFields(tensor.shape()).field_count() > 0;
      for (auto& dim : *tensor.mutable_shape()->mutable_dim()) {
        out.shape->push_back(take_dim(dim));
        anything_left = anything_left || dim.ByteSizeLong() != 0;
      }
      if (!anything_left) tensor.clear_shape();
    }
    if (out.type != DType::Undefined && tensor.ByteSizeLong() == 0) proto.clear_tensor_type();
  }

  /// A negative size, which some exporters write for "unknown", stays in `proto`.
  static Dim take_dim(onnx::TensorShapeProto::Dimension& proto) {
    Dim dim;
    if (proto.has_dim_value() && proto.dim_value() >= 0) dim.value = proto.dim_value();
    if (proto.has_dim_param()) dim.symbol = proto.dim_param();
    if (dim.value || !dim.symbol.empty()) proto.clear_value();
    return dim;
  }

  ExternalFiles& files_;
  bool imports_onnx_ = false;
};

template <typename Proto>
Proto parse(std::span<const std::byte> bytes, WireRoot root, const char* what) {
  if (bytes.empty()) fail(ErrorCode::CorruptFile, "", "the file is empty; {} is accepted", what);
  const auto fail_if_other = [&] {
    const std::string_view other = looks_like(bytes);
    if (!other.empty()) fail(ErrorCode::CorruptFile, "", "this looks like {}; {} is accepted", other, what);
  };
  if (bytes.size() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    fail_if_other();
    fail(ErrorCode::Unsupported, "", "{} bytes are more than protobuf's 2 GiB; keep the weights in external data",
         bytes.size());
  }
  Proto proto;
  try {
    check_wire(bytes, root);
    if (!proto.ParsePartialFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
      fail(ErrorCode::CorruptFile, "", "the file is damaged: protobuf cannot parse it");
    }
    if constexpr (std::is_same_v<Proto, onnx::ModelProto>) {
      if (!proto.has_graph()) fail(ErrorCode::CorruptFile, "", "this is no ONNX model: it has no graph");
    }
  } catch (const Error&) {
    fail_if_other();
    throw;
  }
  return proto;
}

/// Names come from the file and may be anything: control characters and endless ones stay out of messages.
std::string printable(std::string text) {
  constexpr size_t kMost = 2000;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (text.size() > kMost) text = text.substr(0, kMost) + "…";
  return text;
}

/// Runs `body`; what it throws becomes printable and names the file, if there is one.
template <typename Body>
auto naming(const std::string& file, const Body& body) {
  try {
    return body();
  } catch (const Error& error) {
    std::string where = error.where();
    if (where != file) where = file + (file.empty() || where.empty() ? "" : ": ") + printable(where);
    throw Error(error.code(), printable(error.message()), where);
  }
}

Model read(std::span<const std::byte> bytes, ExternalFiles& files) {
  auto proto = parse<onnx::ModelProto>(bytes, WireRoot::Model, "an ONNX model");
  Model model = Reader(files).model(proto);
  sort_nodes(model.graph);
  verify(model);
  return model;
}

Tensor read_tensor(std::span<const std::byte> bytes) {
  auto proto = parse<onnx::TensorProto>(bytes, WireRoot::Tensor, "a serialized ONNX tensor");
  ExternalFiles none;
  return take_tensor(proto, none, "tensor '" + proto.name() + "'");
}

}  // namespace

Model read_onnx(const fs::path& path, int64_t* file_bytes) {
  return naming(path.string(), [&] {
    const auto file = MappedFile::open(path);
    ExternalFiles files(path.parent_path(), path);
    Model model = read(file->bytes(), files);
    if (file_bytes != nullptr) *file_bytes = std::ssize(file->bytes()) + files.bytes();
    return model;
  });
}

Model read_onnx(std::span<const std::byte> bytes, const fs::path& folder) {
  return naming("", [&] {
    ExternalFiles files = folder.empty() ? ExternalFiles() : ExternalFiles(folder);
    return read(bytes, files);
  });
}

Tensor read_tensor_proto(const fs::path& path) {
  return naming(path.string(), [&] { return read_tensor(MappedFile::open(path)->bytes()); });
}

Tensor read_tensor_proto(std::span<const std::byte> bytes) {
  return naming("", [&] { return read_tensor(bytes); });
}

}  // namespace kaon
