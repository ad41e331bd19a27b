#include "lm/builder.h"

#include <algorithm>

#include "base/error.h"
#include "graph/fake_quantize.h"
#include "graph/stored.h"

namespace kaon::lm {

namespace {

constexpr int64_t kOpset = 23;  // the first with Attention, RotaryEmbedding and RMSNormalization
constexpr int64_t kIrVersion = 11;

Attribute int_attribute(const char* name, int64_t value) { return {name, value, {}}; }

std::string past_name(int64_t layer, const char* what) { return fmt::format("past.{}.{}", layer, what); }
std::string new_name(int64_t layer, const char* what) { return fmt::format("new.{}.{}", layer, what); }
constexpr const char* kPastTokens = "past_tokens";

}  // namespace

Builder::Builder(const Weights& weights, BuildOptions options) : weights_(weights), options_(options) {
  model_.opsets[""] = kOpset;
  model_.ir_version = kIrVersion;
  model_.producer_name = "kaon";
}

// Inputs and outputs

std::string Builder::input_ids() {
  shape_source_ = more_ids("input_ids");
  return shape_source_;
}

std::string Builder::more_ids(const std::string& name) {
  ValueInfo info;
  info.name = name;
  info.type = DType::Int64;
  info.shape = {{std::nullopt, "batch"}, {std::nullopt, "tokens"}};
  model_.graph.inputs.push_back(std::move(info));
  names_.insert(name);
  return name;
}

std::string Builder::hidden_input(int64_t width) {
  ValueInfo info;
  info.name = "hidden";
  info.type = DType::Float32;
  info.shape = {{std::nullopt, "batch"}, {std::nullopt, "tokens"}, {width, {}}};
  model_.graph.inputs.push_back(std::move(info));
  names_.insert("hidden");
  shape_source_ = "hidden";
  return fold("hidden", "hidden", width);
}

void Builder::row_output(const std::string& name, const std::string& rows, int64_t width) {
  output(name, unfold(rows, width), {{std::nullopt, "batch"}, {std::nullopt, "tokens"}, {width, {}}});
}

void Builder::output(const std::string& name, const std::string& value, std::vector<Dim> shape) {
  Node node;
  node.name = "/" + name + "/Identity";
  node.op = "Identity";
  node.inputs = {value};
  node.outputs = {name};
  // The last node may as well make the output itself.
  for (Node& made : model_.graph.nodes) {
    if (made.outputs.front() != value) continue;
    const bool is_last = &made == &model_.graph.nodes.back();
    if (!is_last) break;
    made.outputs.front() = name;
    node.outputs.clear();
  }
  if (!node.outputs.empty()) model_.graph.nodes.push_back(std::move(node));
  ValueInfo info;
  info.name = name;
  info.type = DType::Float32;
  info.shape = std::move(shape);
  model_.graph.outputs.push_back(std::move(info));
}

void Builder::declare_cache(int64_t layer, int64_t kv_heads, int64_t head_width) {
  if (past_source_.empty()) {
    ValueInfo count;
    count.name = kPastTokens;
    count.type = DType::Int64;
    count.shape = std::vector<Dim>{Dim{1, {}}};
    model_.graph.inputs.push_back(std::move(count));
  }
  for (const char* what : {"key", "value"}) {
    ValueInfo info;
    info.type = DType::Float32;
    info.shape = {{std::nullopt, "batch"}, {kv_heads, {}}, {std::nullopt, "room"}, {head_width, {}}};
    info.name = past_name(layer, what);
    if (past_source_.empty()) past_source_ = info.name;
    model_.graph.inputs.push_back(info);
    info.name = new_name(layer, what);
    info.shape = {{std::nullopt, "batch"}, {std::nullopt, "tokens"}, {kv_heads * head_width, {}}};
    new_.push_back(std::move(info));
  }
}

// Nodes and constants

std::string Builder::op(const std::string& scope, const std::string& kind, std::vector<std::string> inputs,
                        std::vector<Attribute> attributes, size_t outputs) {
  std::string name = "/" + scope + "/" + kind;
  for (int number = 1; !names_.insert(name).second; ++number) name = fmt::format("/{}_{}/{}", scope, number, kind);
  Node node;
  node.name = name;
  node.op = kind;
  node.inputs = std::move(inputs);
  for (size_t i = 0; i < outputs; ++i) node.outputs.push_back(fmt::format("{}_output_{}", name, i));
  node.attributes = std::move(attributes);
  model_.graph.nodes.push_back(std::move(node));
  return model_.graph.nodes.back().outputs.front();
}

const std::string& Builder::once(const std::string& key, const std::function<std::string()>& make) {
  const auto it = made_.find(key);
  if (it != made_.end()) return it->second;
  std::string value = make();
  return made_.emplace(key, std::move(value)).first->second;
}

std::string Builder::constant(const std::string& name, Tensor tensor) {
  if (!names_.insert(name).second) fail(ErrorCode::Internal, name, "a second constant of this name");
  model_.graph.initializers.push_back({name, std::move(tensor), {}, {}});
  return name;
}

std::string Builder::ints(const std::vector<int64_t>& values) {
  const std::string name = fmt::format("ints.{}", fmt::join(values, "_"));
  return once(name, [&] { return constant(name, Tensor::of<int64_t>({std::ssize(values)}, values)); });
}

std::string Builder::number(float value) {
  const std::string name = fmt::format("number.{}", value);
  return once(name, [&] { return constant(name, Tensor::scalar(value)); });
}

// Weights

Tensor Builder::checked(const std::string& name, const Shape& shape) const {
  const std::optional<Shape> stored = weights_.shape(name);
  if (!stored) fail(ErrorCode::InvalidInput, weights_.where(name), "the tensor '{}' is missing", name);
  if (*stored != shape) {
    fail(ErrorCode::InvalidInput, weights_.where(name), "the tensor '{}' has the shape {}; the config makes it {}",
         name, to_string(*stored), to_string(shape));
  }
  Tensor tensor = weights_.tensor(name);
  if (tensor.type() != DType::Float32 && !is_half(tensor.type())) {
    fail(ErrorCode::Unsupported, weights_.where(name),
         "the tensor '{}' is {}; float32, float16 and bfloat16 can be read", name, name_of(tensor.type()));
  }
  return tensor;
}

std::string Builder::weight(const std::string& name, const Shape& shape) {
  return once(name, [&] {
    Tensor tensor = checked(name, shape);
    if (!is_half(tensor.type())) return constant(name, std::move(tensor));
    // Vectors are small: they become float32 here.
    if (shape.size() < 2) return constant(name, Tensor::of<float>(shape, tensor.to_float()));
    const std::string stored = fmt::format("{}.{}", name, name_of(tensor.type()));
    constant(stored, std::move(tensor));
    op(name, "Cast", {stored}, {int_attribute("to", static_cast<int64_t>(DType::Float32))});
    model_.graph.nodes.back().outputs = {name};
    return name;
  });
}

std::string Builder::layer_input(const std::string& name, const std::string& x) {
  const std::optional<StoredInput> input = weights_.input(name);
  if (!input) return x;
  std::string scale, zero_point;
  if (input->scale != 0) {
    scale = constant(name + ".input_scale", Tensor::of<float>({1}, std::vector<float>{input->scale}));
    zero_point =
        constant(name + ".input_zero_point", Tensor::of<int32_t>({1}, std::vector<int32_t>{input->zero_point}));
  }
  std::string made = name + ".input|q";
  Node node = make_fake_quantize(input->spec, x, made, scale, zero_point);
  node.name = name + ".input";
  model_.opsets[kKaon] = 1;
  model_.graph.nodes.push_back(std::move(node));
  return made;
}

std::string Builder::linear(const std::string& name, const std::string& x, int64_t inputs, int64_t outputs, bool bias) {
  std::vector<std::string> from{layer_input(name, x), weight(name + ".weight", {outputs, inputs})};
  if (bias) from.push_back(weight(name + ".bias", {outputs}));
  return op(name, "Gemm", std::move(from), {int_attribute("transB", 1)});
}

std::string Builder::linear_in_out(const std::string& name, const std::string& x, int64_t inputs, int64_t outputs) {
  const std::string matrix = weight(name + ".weight", {inputs, outputs});
  return op(name, "Gemm", {layer_input(name, x), matrix, weight(name + ".bias", {outputs})});
}

std::string Builder::tied_linear(const std::string& name, const std::string& table, const std::string& x,
                                 int64_t inputs, int64_t outputs) {
  const std::string own = name + ".weight";
  Tensor tensor = checked(table, {outputs, inputs});
  if (is_half(tensor.type())) {
    const std::string stored = fmt::format("{}.{}", table, name_of(tensor.type()));
    if (!names_.contains(stored)) constant(stored, std::move(tensor));
    op(own, "Cast", {stored}, {int_attribute("to", static_cast<int64_t>(DType::Float32))});
    model_.graph.nodes.back().outputs = {own};
  } else {
    constant(own, std::move(tensor));  // the data is shared
  }
  return op(name, "Gemm", {x, own}, {int_attribute("transB", 1)});
}

std::string Builder::embedding(const std::string& name, const std::string& ids, int64_t entries, int64_t width) {
  const std::string table = name + ".weight";
  Tensor tensor = checked(table, {entries, width});
  std::string rows;
  if (is_half(tensor.type())) {
    const std::string stored = fmt::format("{}.{}", table, name_of(tensor.type()));
    if (!names_.contains(stored)) constant(stored, std::move(tensor));
    rows = op(name, "Gather", {stored, ids});
    rows = op(name, "Cast", {rows}, {int_attribute("to", static_cast<int64_t>(DType::Float32))});
  } else {
    rows = op(name, "Gather", {weight(table, {entries, width}), ids});
  }
  return fold(name, rows, width);
}

std::string Builder::layer_norm(const std::string& name, const std::string& x, int64_t width, double epsilon) {
  return op(name, "LayerNormalization", {x, weight(name + ".weight", {width}), weight(name + ".bias", {width})},
            {int_attribute("axis", -1), {"epsilon", static_cast<float>(epsilon), {}}});
}

std::string Builder::rms_norm(const std::string& name, const std::string& x, int64_t width, double epsilon,
                              bool plus_one) {
  std::string factor = name + ".weight";
  if (plus_one) {
    std::vector<float> values = checked(factor, {width}).to_float();
    for (float& value : values) value += 1;
    factor = constant(name + ".factor", Tensor::of<float>({width}, values));
  } else {
    factor = weight(factor, {width});
  }
  return op(name, "RMSNormalization", {x, factor},
            {int_attribute("axis", -1), {"epsilon", static_cast<float>(epsilon), {}}});
}

std::string Builder::head_norm(const std::string& name, const std::string& x, int64_t heads, int64_t width,
                               double epsilon) {
  const std::string apart = op(name, "Reshape", {x, ints({-1, heads, width})});
  return fold(name, rms_norm(name, apart, width, epsilon), heads * width);
}

// Arithmetic

std::string Builder::activation(const std::string& scope, const std::string& kind, const std::string& x) {
  if (kind == "relu") return op(scope, "Relu", {x});
  if (kind == "silu" || kind == "swish") return op(scope, "Mul", {x, op(scope, "Sigmoid", {x})});
  if (kind == "gelu") return op(scope, "Gelu", {x});
  if (kind == "gelu_new" || kind == "gelu_pytorch_tanh") {
    return op(scope, "Gelu", {x}, {{"approximate", std::string("tanh"), {}}});
  }
  fail(ErrorCode::Unsupported, scope, "the activation '{}'; relu, silu, gelu, gelu_new and gelu_pytorch_tanh are known",
       kind);
}

std::string Builder::add(const std::string& scope, const std::string& a, const std::string& b) {
  return op(scope, "Add", {a, b});
}

std::string Builder::multiply(const std::string& scope, const std::string& a, const std::string& b) {
  return op(scope, "Mul", {a, b});
}

std::string Builder::scale(const std::string& scope, const std::string& x, float factor) {
  return op(scope, "Mul", {x, number(factor)});
}

std::string Builder::soft_cap(const std::string& scope, const std::string& x, float cap) {
  return scale(scope, op(scope, "Tanh", {op(scope, "Div", {x, number(cap)})}), cap);
}

std::vector<std::string> Builder::split(const std::string& scope, const std::string& x,
                                        const std::vector<int64_t>& widths) {
  op(scope, "Split", {x, ints(widths)}, {int_attribute("axis", -1)}, widths.size());
  return model_.graph.nodes.back().outputs;
}

// Shapes and positions

const std::string& Builder::tokens() {
  return once("tokens", [&] {
    return op("tokens", "Shape", {shape_source_}, {int_attribute("start", 0), int_attribute("end", 2)});
  });
}

const std::string& Builder::sequence() {
  return once("sequence", [&] { return op("sequence", "Gather", {tokens(), ints({1})}); });
}

const std::string& Builder::past() {
  return once("past", [&] { return past_source_.empty() ? ints({0}) : kPastTokens; });
}

const std::string& Builder::total() {
  return once("total", [&] { return op("total", "Add", {past(), sequence()}); });
}

std::string Builder::unfold(const std::string& rows, int64_t width) {
  const std::string& shape = once(fmt::format("shape.{}", width), [&] {
    return op("shape", "Concat", {tokens(), ints({width})}, {int_attribute("axis", 0)});
  });
  return op("unfold", "Reshape", {rows, shape});
}

std::string Builder::fold(const std::string& scope, const std::string& value, int64_t width) {
  return op(scope, "Reshape", {value, ints({-1, width})});
}

std::string Builder::last_rows(const std::string& rows, int64_t width) {
  const std::string last = op("last", "Slice", {unfold(rows, width), ints({-1}), ints({INT64_MAX}), ints({1})});
  // What was made from the old T must be made again.
  std::erase_if(made_, [](const auto& row) { return row.first == "tokens" || row.first.starts_with("shape."); });
  shape_source_ = last;
  return fold("last", last, width);
}

std::string Builder::positions(int64_t offset) {
  return once(fmt::format("positions.{}", offset), [&] {
    const std::string& scope = "positions";
    const std::string none = ints({});
    const auto scalar = [&](const std::string& value) { return op(scope, "Reshape", {value, none}); };
    const std::string end = scalar(op(scope, "Add", {sequence(), ints({offset})}));
    std::string places = op(scope, "Range", {scalar(ints({offset})), end, scalar(ints({1}))});
    if (options_.cache) places = op(scope, "Add", {places, past()});
    return op(scope, "Expand", {places, tokens()});
  });
}

std::string Builder::angle(const Rope& rope, const std::string& function) {
  // Every block of a model turns alike: one set of angles serves all.
  const std::string& angles = once("rope", [&] {
    const auto table = [&](const char* name, const std::vector<float>& values) {
      return constant(name, Tensor::of<float>({std::ssize(values)}, values));
    };
    std::string frequencies = table("rope.frequencies", rope.frequencies);
    if (!rope.long_frequencies.empty()) {
      const std::string longer = op("rope", "Greater", {total(), ints({rope.long_from})});
      frequencies = op("rope", "Where", {longer, table("rope.long_frequencies", rope.long_frequencies), frequencies});
    }
    std::string at = op("rope", "Cast", {positions()}, {int_attribute("to", static_cast<int64_t>(DType::Float32))});
    at = op("rope", "Unsqueeze", {at, ints({-1})});
    return op("rope", "Mul", {at, frequencies});
  });
  return once("rope." + function, [&] {
    const std::string value = op("rope", function, {angles});
    return rope.scaling == 1 ? value : scale("rope", value, rope.scaling);
  });
}

std::string Builder::rotate(const std::string& scope, const std::string& x, int64_t heads, int64_t width,
                            const Rope& rope) {
  const std::string cosine = angle(rope, "Cos"), sine = angle(rope, "Sin");
  std::vector<Attribute> attributes{int_attribute("num_heads", heads)};
  if (rope.width != width) attributes.push_back(int_attribute("rotary_embedding_dim", rope.width));
  return op(scope, "RotaryEmbedding", {unfold(x, heads * width), cosine, sine}, std::move(attributes));
}

// Attention

std::vector<Attribute> Builder::attention_attributes(const AttentionShape& shape) const {
  std::vector<Attribute> attributes{int_attribute("q_num_heads", shape.heads),
                                    int_attribute("kv_num_heads", shape.kv_heads)};
  if (shape.scale) attributes.push_back({"scale", *shape.scale, {}});
  if (shape.softcap > 0) attributes.push_back({"softcap", shape.softcap, {}});
  return attributes;
}

std::string Builder::seen(int64_t window) {
  if (window == 0 && !options_.cache) return "";
  return once(fmt::format("mask.{}", window), [&] {
    const std::string& scope = "mask";
    const std::string none = ints({});
    const auto scalar = [&](const std::string& value) { return op(scope, "Reshape", {value, none}); };
    const auto count = [&](const std::string& end) {
      return op(scope, "Range", {scalar(ints({0})), scalar(end), scalar(ints({1}))});
    };
    const auto join = [&](const std::string& a, const std::string& b) {
      return op(scope, "Concat", {a, b}, {int_attribute("axis", 0)});
    };
    std::string queries = count(sequence());
    std::string keys = queries;
    std::string filled;
    if (options_.cache) {
      const std::string room = op(scope, "Shape", {past_source_}, {int_attribute("start", 2), int_attribute("end", 3)});
      const std::string places = count(room);
      // The new tokens come behind the room: they always count.
      const std::string numbers = join(places, op(scope, "Expand", {ints({-1}), sequence()}));
      filled = op(scope, "Unsqueeze", {op(scope, "Less", {numbers, past()}), ints({0})});
      if (window == 0) return filled;
      queries = op(scope, "Add", {queries, past()});
      keys = join(places, queries);
    }
    const std::string gap = op(scope, "Sub", {op(scope, "Unsqueeze", {queries, ints({1})}), keys});
    const std::string near = op(scope, "Less", {gap, ints({window})});
    return filled.empty() ? near : op(scope, "And", {near, filled});
  });
}

std::string Builder::attention(const std::string& scope, int64_t layer, const std::string& q, const std::string& k,
                               const std::string& v, const AttentionShape& shape) {
  std::vector<Attribute> attributes = attention_attributes(shape);
  attributes.push_back(int_attribute("is_causal", 1));
  std::vector<std::string> inputs{q, k, v};
  const std::string mask = seen(shape.window);
  if (!mask.empty()) inputs.push_back(mask);
  if (options_.cache) {
    inputs.push_back(past_name(layer, "key"));
    inputs.push_back(past_name(layer, "value"));
    op(scope, "Identity", {k});
    model_.graph.nodes.back().outputs = {new_name(layer, "key")};
    op(scope, "Identity", {v});
    model_.graph.nodes.back().outputs = {new_name(layer, "value")};
  }
  const std::string y = op(scope, "Attention", std::move(inputs), std::move(attributes));
  return fold(scope, y, shape.heads * shape.head_width);
}

std::string Builder::full_attention(const std::string& scope, const std::string& mask, const std::string& q,
                                    const std::string& k, const std::string& v, const AttentionShape& shape) {
  const std::string& seen = once("mask", [&] {
    const std::string flags = op("mask", "Cast", {mask}, {int_attribute("to", static_cast<int64_t>(DType::Bool))});
    return op("mask", "Unsqueeze", {flags, ints({1, 2})});
  });
  return fold(scope, op(scope, "Attention", {q, k, v, seen}, attention_attributes(shape)),
              shape.heads * shape.head_width);
}

Model Builder::finish(const std::string& name) {
  model_.graph.name = name;
  for (ValueInfo& output : new_) model_.graph.outputs.push_back(std::move(output));
  return std::move(model_);
}

}  // namespace kaon::lm
