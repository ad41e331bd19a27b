#include "graph/fake_quantize.h"

#include "base/error.h"

namespace kaon {

Node make_fake_quantize(const TensorSpec& spec, std::string input, std::string output, std::string scale,
                        std::string zero_point) {
  if (scale.empty() && !zero_point.empty()) {
    fail(ErrorCode::InvalidInput, zero_point, "a zero point needs a scale beside it");
  }
  Node node;
  node.op = "FakeQuantize";
  node.domain = kKaon;
  node.inputs = {std::move(input)};
  if (!scale.empty()) node.inputs.push_back(std::move(scale));
  if (!zero_point.empty()) node.inputs.push_back(std::move(zero_point));
  node.outputs = {std::move(output)};
  const TensorSpec usual;
  node.set("format", spec.format);
  if (spec.granularity != usual.granularity) node.set("granularity", std::string(enum_name(spec.granularity)));
  if (spec.axis != usual.axis) node.set("axis", spec.axis);
  if (spec.group_size != usual.group_size) node.set("group_size", spec.group_size);
  if (spec.symmetric != usual.symmetric) node.set("symmetric", int64_t{spec.symmetric});
  if (spec.scale_type != usual.scale_type) node.set("scale_type", std::string(enum_name(spec.scale_type)));
  if (spec.rounding != usual.rounding) node.set("rounding", std::string(enum_name(spec.rounding)));
  if (spec.block_scale != usual.block_scale) node.set("block_scale", std::string(enum_name(spec.block_scale)));
  return node;
}

namespace {

/// An attribute of the kind T; `otherwise` where it is left out.
template <typename T>
T attribute(const Node& node, const char* key, T otherwise) {
  if (node.find(key) == nullptr) return otherwise;
  const T* value = node.get_if<T>(key);
  if (value == nullptr) fail(ErrorCode::InvalidInput, node.label(), "the attribute '{}' is of the wrong kind", key);
  return *value;
}

template <typename E>
E named(const Node& node, const char* key, E otherwise) {
  const std::string name = attribute<std::string>(node, key, std::string(enum_name(otherwise)));
  try {
    return enum_value<E>(name, node.label());
  } catch (const Error& error) {
    fail(ErrorCode::InvalidInput, error.where(), "{}", error.what());
  }
}

}  // namespace

bool is_fake_quantize(const Node& node) { return node.domain == kKaon && node.op == "FakeQuantize"; }

TensorSpec fake_quantize_spec(const Node& node) {
  const TensorSpec usual;
  TensorSpec spec;
  spec.format = attribute(node, "format", usual.format);
  spec.granularity = named(node, "granularity", usual.granularity);
  spec.axis = attribute(node, "axis", usual.axis);
  spec.group_size = attribute(node, "group_size", usual.group_size);
  spec.symmetric = attribute(node, "symmetric", int64_t{usual.symmetric}) != 0;
  spec.scale_type = named(node, "scale_type", usual.scale_type);
  spec.rounding = named(node, "rounding", usual.rounding);
  spec.block_scale = named(node, "block_scale", usual.block_scale);
  if (formats().find(spec.format) == nullptr) {
    fail(ErrorCode::InvalidInput, node.label(), "unknown format '{}'", spec.format);
  }
  return spec;
}

}  // namespace kaon
