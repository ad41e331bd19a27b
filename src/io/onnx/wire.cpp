#include "io/onnx/wire.h"

#include <array>
#include <cstdint>
#include <string>

#include "base/error.h"

namespace kaon {

namespace {

enum class Kind {
  Model,
  Graph,
  Node,
  Attribute,
  Tensor,
  Sparse,
  Value,
  Type,
  TensorType,
  TypeHolder,
  MapType,
  Shape,
  Function,
  Training,
  Annotation,
  Leaf
};

struct Edge {
  Kind parent;
  uint32_t field;
  Kind child;
  std::string_view name;
};

// The message fields of onnx.proto; every other length-delimited field is bytes to this walk.
constexpr std::array kEdges{
    Edge{Kind::Model, 7, Kind::Graph, "graph"},
    Edge{Kind::Model, 8, Kind::Leaf, "opset_import"},
    Edge{Kind::Model, 14, Kind::Leaf, "metadata_props"},
    Edge{Kind::Model, 20, Kind::Training, "training_info"},
    Edge{Kind::Model, 25, Kind::Function, "functions"},
    Edge{Kind::Graph, 1, Kind::Node, "node"},
    Edge{Kind::Graph, 5, Kind::Tensor, "initializer"},
    Edge{Kind::Graph, 11, Kind::Value, "input"},
    Edge{Kind::Graph, 12, Kind::Value, "output"},
    Edge{Kind::Graph, 13, Kind::Value, "value_info"},
    Edge{Kind::Graph, 14, Kind::Annotation, "quantization_annotation"},
    Edge{Kind::Graph, 15, Kind::Sparse, "sparse_initializer"},
    Edge{Kind::Node, 5, Kind::Attribute, "attribute"},
    Edge{Kind::Attribute, 5, Kind::Tensor, "t"},
    Edge{Kind::Attribute, 6, Kind::Graph, "g"},
    Edge{Kind::Attribute, 10, Kind::Tensor, "tensors"},
    Edge{Kind::Attribute, 11, Kind::Graph, "graphs"},
    Edge{Kind::Attribute, 14, Kind::Type, "tp"},
    Edge{Kind::Attribute, 15, Kind::Type, "type_protos"},
    Edge{Kind::Attribute, 22, Kind::Sparse, "sparse_tensor"},
    Edge{Kind::Attribute, 23, Kind::Sparse, "sparse_tensors"},
    Edge{Kind::Tensor, 3, Kind::Leaf, "segment"},
    Edge{Kind::Tensor, 13, Kind::Leaf, "external_data"},
    Edge{Kind::Sparse, 1, Kind::Tensor, "values"},
    Edge{Kind::Sparse, 2, Kind::Tensor, "indices"},
    Edge{Kind::Value, 2, Kind::Type, "type"},
    Edge{Kind::Type, 1, Kind::TensorType, "tensor_type"},
    Edge{Kind::Type, 4, Kind::TypeHolder, "sequence_type"},
    Edge{Kind::Type, 5, Kind::MapType, "map_type"},
    Edge{Kind::Type, 8, Kind::TensorType, "sparse_tensor_type"},
    Edge{Kind::Type, 9, Kind::TypeHolder, "optional_type"},
    Edge{Kind::TensorType, 2, Kind::Shape, "shape"},
    Edge{Kind::TypeHolder, 1, Kind::Type, "elem_type"},
    Edge{Kind::MapType, 2, Kind::Type, "value_type"},
    Edge{Kind::Shape, 1, Kind::Leaf, "dim"},
    Edge{Kind::Function, 7, Kind::Node, "node"},
    Edge{Kind::Function, 9, Kind::Leaf, "opset_import"},
    Edge{Kind::Training, 1, Kind::Graph, "initialization"},
    Edge{Kind::Training, 2, Kind::Graph, "algorithm"},
    Edge{Kind::Training, 3, Kind::Leaf, "initialization_binding"},
    Edge{Kind::Training, 4, Kind::Leaf, "update_binding"},
    Edge{Kind::Annotation, 2, Kind::Leaf, "quant_parameter_tensor_names"},
};

// Below protobuf's own recursion limit of 100; a subgraph takes three levels.
constexpr int kMaxDepth = 96;
// A parsed message takes some 500 bytes, a string 100, however few the file spends on them.
constexpr int64_t kMaxMessages = int64_t{1} << 22;
constexpr int64_t kMaxStrings = int64_t{1} << 24;

class Walker {
 public:
  explicit Walker(std::span<const std::byte> bytes) : bytes_(bytes) {}

  struct Place {
    const Place* outer;
    std::string_view name;
  };

  void walk(Kind kind, size_t begin, size_t end, int depth, const Place& place) {
    if (depth > kMaxDepth) {
      fail(ErrorCode::CorruptFile, describe(place, begin), "messages nest deeper than {} levels", kMaxDepth);
    }
    if (++messages_ > kMaxMessages) {
      fail(ErrorCode::CorruptFile, describe(place, begin), "more than {} messages", kMaxMessages);
    }
    for (size_t at = begin; at < end;) at = field(kind, at, end, depth, place);
  }

 private:
  /// Walks the field at `at`; returns where the next one starts.
  size_t field(Kind kind, size_t at, size_t end, int depth, const Place& place) {
    const size_t begin = at;
    const uint64_t tag = varint(at, end, place);
    const uint64_t number = tag >> 3;
    if (number == 0 || number >= (uint64_t{1} << 29)) {
      fail(ErrorCode::CorruptFile, describe(place, begin),
           "no protobuf field, its number is {}: this is no ONNX file, or a damaged one", number);
    }
    uint64_t length = 0;
    switch (tag & 7) {
      case 0: varint(at, end, place); return at;
      case 1: length = 8; break;
      case 2: length = varint(at, end, place); break;
      case 5: length = 4; break;
      default:
        fail(ErrorCode::CorruptFile, describe(place, begin),
             "field {} has the unused wire type {}: this is no ONNX file, or a damaged one", number, tag & 7);
    }
    if (length > end - at) {
      fail(ErrorCode::CorruptFile, describe(place, begin),
           "field {} needs {} bytes where {} are left: the file is truncated or damaged", number, length, end - at);
    }
    const size_t next = at + static_cast<size_t>(length);
    if ((tag & 7) != 2) return next;
    for (const Edge& edge : kEdges) {
      if (edge.parent == kind && edge.field == number) {
        walk(edge.child, at, next, depth + 1, {&place, edge.name});
        return next;
      }
    }
    if (++strings_ > kMaxStrings) {
      fail(ErrorCode::CorruptFile, describe(place, begin), "more than {} strings", kMaxStrings);
    }
    return next;
  }

  uint64_t varint(size_t& at, size_t end, const Place& place) {
    const size_t begin = at;
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end)
        fail(ErrorCode::CorruptFile, describe(place, begin),
             "the file is truncated or damaged: it ends inside a number");
      const auto byte = static_cast<uint64_t>(bytes_[at++]);
      value |= (byte & 0x7F) << shift;
      if ((byte & 0x80) == 0) return value;
    }
    fail(ErrorCode::CorruptFile, describe(place, begin), "a number longer than ten bytes");
  }

  static std::string describe(const Place& place, size_t at) {
    constexpr int kMostLevels = 8;
    std::string path;
    int levels = 0;
    for (const Place* p = &place; p->outer != nullptr; p = p->outer) {
      const bool shown = ++levels <= kMostLevels;
      path = fmt::format("{}{}{}", shown ? p->name : "…", path.empty() ? "" : ".", path);
      if (!shown) break;
    }
    return fmt::format("byte {}{}{}", at, path.empty() ? "" : ", in ", path);
  }

  std::span<const std::byte> bytes_;
  int64_t messages_ = 0;
  int64_t strings_ = 0;
};

struct Magic {
  size_t offset;
  std::string_view text;
  std::string_view what;
};

using std::string_view_literals::operator""sv;

constexpr std::array kMagics{
    Magic{0, "PK\x03\x04"sv, "a zip archive (a PyTorch checkpoint or .npz perhaps)"},
    Magic{0, "\x1F\x8B"sv, "a gzip archive"},
    Magic{0, "\x93NUMPY"sv, "a .npy array"},
    Magic{0, "\x89HDF"sv, "an HDF5 file (a Keras model perhaps)"},
    Magic{0, "GGUF"sv, "a GGUF file"},
    Magic{0, "ORTM"sv, "an ONNX Runtime .ort file"},
    Magic{4, "ORTM"sv, "an ONNX Runtime .ort file"},
    Magic{4, "TFL3"sv, "a TensorFlow Lite model"},
    Magic{8, "{\""sv, "a safetensors file"},
    Magic{0, "\x80\x02"sv, "a Python pickle (an old PyTorch checkpoint perhaps)"},
    Magic{0,
          "\x7F"
          "ELF"sv,
          "an ELF program"},
    Magic{0, "\x89PNG"sv, "a PNG image"},
    Magic{0, "\xFF\xD8\xFF"sv, "a JPEG image"},
    Magic{0, "version https://git-lfs"sv, "a Git LFS pointer; the model itself was not fetched"},
    Magic{0, "{"sv, "JSON text"},
    Magic{0, "["sv, "JSON text"},
    Magic{0, "<"sv, "XML or HTML text"},
    Magic{0, "ir_version:"sv, "an ONNX model in protobuf's text form"},
};

}  // namespace

void check_wire(std::span<const std::byte> bytes, WireRoot root) {
  Walker(bytes).walk(root == WireRoot::Model ? Kind::Model : Kind::Tensor, 0, bytes.size(), 0, {nullptr, {}});
}

std::string_view looks_like(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const Magic& magic : kMagics) {
    if (text.size() > magic.offset && text.substr(magic.offset).starts_with(magic.text)) return magic.what;
  }
  return {};
}

}  // namespace kaon
