#include "doctor/brought_in.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "doctor/cures.h"
#include "engine/engine.h"
#include "graph/compute_in_float32.h"
#include "graph/edit.h"
#include "graph/pass.h"

namespace kaon {
namespace {

/// One QuantizeLinear and DequantizeLinear, or one DequantizeLinear of codes.
struct Pair {
  std::string from;  ///< the float value before it
  std::string to;    ///< what its readers see in the file
  Tensor scale;
  Tensor zero_point;  ///< undefined: 0
  DType type = DType::UInt8;
  int64_t axis = 1;
};

/// The format of codes of this type, or "".
std::string format_of(DType type) {
  switch (type) {
    case DType::Int8: return "int8";
    case DType::UInt8: return "uint8";
    case DType::Int16: return "int16";
    case DType::UInt16: return "uint16";
    case DType::Int4: return "int4";
    case DType::UInt4: return "uint4";
    default: return "";
  }
}

constexpr const char* kRelu = "|relu";

class Reading {
 public:
  explicit Reading(Model model) : model_(std::move(model)) {
    compute_in_float32(model_);
    PassContext context;
    context.evaluate = evaluate_node;
    run_passes(model_, context);
  }

  std::optional<QuantizedModel> run() {
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      for (const std::string& output : graph().nodes[i].outputs) producer_[output] = i;
    }
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      if (graph().nodes[i].op == "DequantizeLinear") take(i);
    }
    if (pairs_.empty()) return std::nullopt;
    take_out();
    drop_unread_constants(graph());
    // A node without a name is called by what it makes, which preparations may change.
    for (Node& node : graph().nodes) node.name = node.name.empty() ? plain_name(node) : node.name;
    QuantizedModel quantized;
    quantized.model = quantized.original = model_;
    quantized.layers = layers(graph());
    layers_ = &quantized.layers;
    for (const Pair& pair : pairs_) add(pair, quantized);
    if (quantized.quantizers.empty()) return std::nullopt;
    // Operators between layers follow what they read.
    for (const Quantizer& quantizer : quantized.quantizers) {
      set_rule(quantized.config, serving_layers(quantized, quantizer), spec_of(quantizer));
    }
    return quantized;
  }

 private:
  Graph& graph() { return model_.graph; }

  const Tensor* constant(const std::string& name) {
    const Initializer* found = graph().find_initializer(name);
    return found == nullptr ? nullptr : &found->tensor;
  }

  /// Notes the DequantizeLinear at `index` where its parameters are constants.
  void take(size_t index) {
    const Node& node = graph().nodes[index];
    const Tensor* scale = node.inputs.size() > 1 ? constant(node.inputs[1]) : nullptr;
    if (scale == nullptr || scale->type() != DType::Float32 || scale->rank() > 1 || node.get_int("block_size", 0) != 0)
      return;
    const bool has_zero = node.inputs.size() > 2 && !node.inputs[2].empty();
    const Tensor* zero = has_zero ? constant(node.inputs[2]) : nullptr;
    if (has_zero && zero == nullptr) return;
    Pair pair;
    pair.to = node.outputs[0];
    pair.scale = *scale;
    if (zero != nullptr) pair.zero_point = *zero;
    pair.axis = node.get_int("axis", 1);
    if (const Tensor* codes = constant(node.inputs[0])) {
      std::vector<Tensor> inputs = {*codes, *scale};
      if (zero != nullptr) inputs.push_back(*zero);
      const Tensor values = evaluate_node(node, model_, inputs).at(0);
      pair.type = codes->type();
      pair.from = pair.to;
      constants_.push_back({pair.to, values, {}, {}});
    } else {
      const auto source = producer_.find(node.inputs[0]);
      if (source == producer_.end() || graph().nodes[source->second].op != "QuantizeLinear") return;
      const Node& quantize = graph().nodes[source->second];
      pair.from = quantize.inputs[0];
      pair.type = zero != nullptr ? zero->type() : DType::UInt8;
      // Codes that start at 0 make a Relu needless, and exporters leave it out; the float model needs it.
      if (starts_at_zero(pair) && may_be_negative(pair.from)) {
        relus_.insert(pair.from);
        pair.from += kRelu;
      }
      instead_[pair.to] = pair.from;
    }
    gone_.insert(pair.to);
    pairs_.push_back(std::move(pair));
  }

  static bool starts_at_zero(const Pair& pair) {
    const std::string name = format_of(pair.type);
    if (name.empty() || pair.scale.size() != 1) return false;
    const int64_t zero = pair.zero_point.defined() ? pair.zero_point.to_int64()[0] : 0;
    return zero == kaon::format(name).integer_min();
  }

  bool may_be_negative(const std::string& value) const {
    const auto source = producer_.find(value);
    if (source == producer_.end()) return false;
    static const std::set<std::string> kOps = {"Conv", "ConvTranspose", "Gemm", "MatMul",
                                               "Add",  "Sub",           "Mul",  "BatchNormalization"};
    return kOps.contains(model_.graph.nodes[source->second].op);
  }

  std::string resolved(std::string name) const {
    for (auto found = instead_.find(name); found != instead_.end(); found = instead_.find(name)) name = found->second;
    return name;
  }

  /// Their readers read the float values from now on.
  void take_out() {
    for (const Initializer& one : constants_) graph().initializers.push_back(one);
    std::erase_if(graph().nodes,
                  [&](const Node& node) { return node.op == "DequantizeLinear" && gone_.contains(node.outputs[0]); });
    for (Node& node : graph().nodes) {
      if (node.op == "QuantizeLinear") continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (gone_.contains(node.inputs[i]))
          readers_[node.inputs[i]].push_back({node.outputs[0], static_cast<int64_t>(i)});
        node.inputs[i] = resolved(node.inputs[i]);
      }
    }
    for (const std::string& value : relus_) {
      const auto maker = std::ranges::find_if(graph().nodes, [&](const Node& node) { return node_id(node) == value; });
      Node node;
      node.op = "Relu";
      node.inputs = {value};
      node.outputs = {value + kRelu};
      graph().nodes.insert(maker + 1, std::move(node));
    }
    std::set<std::string> read;
    for (const Node& node : graph().nodes) read.insert(node.inputs.begin(), node.inputs.end());
    for (const ValueInfo& output : graph().outputs) read.insert(output.name);
    std::erase_if(graph().nodes,
                  [&](const Node& node) { return node.op == "QuantizeLinear" && !read.contains(node.outputs[0]); });
    for (const ValueInfo& output : graph().outputs) {
      if (!instead_.contains(output.name)) continue;
      Node node;
      node.op = "Identity";
      node.inputs = {resolved(output.name)};
      node.outputs = {output.name};
      readers_[output.name].push_back({output.name, 0});
      graph().nodes.push_back(std::move(node));
    }
  }

  std::vector<Reader> all_readers(const std::string& value) {
    std::vector<Reader> readers;
    for (const Node& node : graph().nodes) {
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] == value) readers.push_back({node.outputs[0], static_cast<int64_t>(i)});
      }
    }
    return readers;
  }

  void add(const Pair& pair, QuantizedModel& quantized) {
    const std::string format = format_of(pair.type);
    const std::vector<Reader>& readers = readers_[pair.to];
    const std::string value = resolved(pair.from);
    const Tensor* weight = constant(value);
    if (format.empty() || readers.empty()) return;  // 32-bit codes are biases: exact enough
    Quantizer quantizer;
    quantizer.id = std::ssize(quantized.quantizers);
    quantizer.tensor = value;
    quantizer.spec.format = format;
    const bool per_channel = pair.scale.size() > 1;
    quantizer.spec.granularity = per_channel ? Granularity::PerChannel : Granularity::PerTensor;
    quantizer.spec.axis = pair.axis;
    quantizer.params.scale = pair.scale.to_float();
    quantizer.params.zero_point.assign(quantizer.params.scale.size(), 0);
    if (pair.zero_point.defined()) {
      const std::vector<int64_t> zero = pair.zero_point.to_int64();
      std::ranges::copy(zero, quantizer.params.zero_point.begin());
    }
    quantizer.spec.symmetric =
        std::ranges::all_of(quantizer.params.zero_point, [](int32_t zero) { return zero == 0; }) &&
        kaon::format(format).is_signed;
    if (weight != nullptr) {
      quantizer.kind = Slot::Weight;
      quantizer.params.tiling =
          per_channel ? Tiling::per_channel(weight->shape(), pair.axis) : Tiling::per_tensor(weight->shape());
      quantizer.readers = readers;
    } else {
      const Shape channels{std::ssize(quantizer.params.scale)};
      quantizer.params.tiling = per_channel ? Tiling::per_channel(channels, 0) : Tiling::per_tensor(Shape{});
      const bool is_input =
          std::ranges::any_of(graph().inputs, [&](const ValueInfo& one) { return one.name == value; });
      quantizer.kind = is_input ? Slot::Input : Slot::Output;
      if (quantizer.kind == Slot::Input || all_readers(value).size() != readers.size()) quantizer.readers = readers;
    }
    if (!per_channel) {
      const Format& f = kaon::format(format);
      const double scale = quantizer.params.scale[0];
      const auto zero = static_cast<double>(quantizer.params.zero_point[0]);
      quantizer.observed = {static_cast<float>((static_cast<double>(f.integer_min()) - zero) * scale),
                            static_cast<float>((static_cast<double>(f.integer_max()) - zero) * scale)};
    }
    name(quantizer, readers);
    quantized.quantizers.push_back(std::move(quantizer));
  }

  void name(Quantizer& quantizer, const std::vector<Reader>& readers) {
    if (quantizer.kind == Slot::Output) quantizer.serves.push_back({maker_of(quantizer.tensor), Slot::Output});
    for (const Reader& reader : readers) {
      const auto layer = std::ranges::find_if(*layers_, [&](const Layer& one) { return one.node == reader.node; });
      if (layer == layers_->end()) continue;
      const bool is_weight = reader.input == static_cast<int64_t>(layer->weight_input);
      quantizer.serves.push_back({layer->name, is_weight                        ? Slot::Weight
                                               : quantizer.kind == Slot::Weight ? Slot::Bias
                                                                                : Slot::Input});
    }
    if (quantizer.serves.empty())
      quantizer.serves.push_back({plain_name(node_by_id(graph(), readers.front().node)), Slot::Input});
  }

  /// The layer or node whose output this is; a Relu or Clip belongs to what it reads.
  std::string maker_of(const std::string& value) {
    const Node& node = node_by_id(graph(), value);
    const bool covers = node.op == "Relu" || node.op == "Clip";
    const bool made =
        covers && std::ranges::any_of(graph().nodes, [&](const Node& one) { return node_id(one) == node.inputs[0]; });
    const std::string& before = made ? node.inputs[0] : value;
    const auto layer = std::ranges::find_if(*layers_, [&](const Layer& one) { return one.output == before; });
    return layer == layers_->end() ? plain_name(node_by_id(graph(), before)) : layer->name;
  }

  Model model_;
  std::map<std::string, size_t> producer_;
  std::vector<Pair> pairs_;
  std::map<std::string, std::string> instead_;  ///< what DequantizeLinear made -> the float value
  std::set<std::string> relus_;                 ///< values that get a Relu behind them
  std::set<std::string> gone_;                  ///< what the DequantizeLinears that go made
  std::vector<Initializer> constants_;
  std::map<std::string, std::vector<Reader>> readers_;  ///< of what they made
  const std::vector<Layer>* layers_ = nullptr;
};

}  // namespace

std::optional<QuantizedModel> read_quantizers(const Model& file) { return Reading(file).run(); }

}  // namespace kaon
