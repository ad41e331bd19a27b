#pragma once
#include <onnx/onnx_pb.h>

#include <string>

namespace kaon {

/// x [2] → Relu → y, opset 13: the smallest model that these tests damage and extend.
inline onnx::ModelProto small_model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(13);
  auto& graph = *model.mutable_graph();
  graph.set_name("g");
  for (auto* value : {graph.add_input(), graph.add_output()}) {
    value->mutable_type()->mutable_tensor_type()->set_elem_type(1);
    value->mutable_type()->mutable_tensor_type()->mutable_shape()->add_dim()->set_dim_value(2);
  }
  graph.mutable_input(0)->set_name("x");
  graph.mutable_output(0)->set_name("y");
  auto& node = *graph.add_node();
  node.set_op_type("Relu");
  node.add_input("x");
  node.add_output("y");
  return model;
}

/// Adds an initializer "w" without data.
inline onnx::TensorProto& add_weight(onnx::ModelProto& model, int type, std::initializer_list<int64_t> dims) {
  auto& tensor = *model.mutable_graph()->add_initializer();
  tensor.set_name("w");
  tensor.set_data_type(type);
  for (const int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

inline void add_external(onnx::TensorProto& tensor, const std::string& location, const std::string& offset = {},
                         const std::string& length = {}) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  const auto put = [&](const char* key, const std::string& value) {
    auto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  put("location", location);
  if (!offset.empty()) put("offset", offset);
  if (!length.empty()) put("length", length);
}

}  // namespace kaon
