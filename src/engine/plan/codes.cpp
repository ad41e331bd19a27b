#include "engine/plan/codes.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "engine/spatial.h"
#include "engine/threads.h"

namespace kaon {

namespace {

using dnnl::algorithm;
using dnnl::memory;
using Grid = FlatQuantizer::Grid;

constexpr float kSteps = 255;

bool fits_codes(const Grid& grid) {
  constexpr float kLargest = 1e15F;  // a step that products cannot turn into infinities or zeros
  return grid.high - grid.low <= kSteps && grid.step < kLargest && 1 / grid.step < kLargest;
}

/// Weights that are int8 codes with a scale for each output.
struct WeightCodes {
  at::Tensor codes;
  at::Tensor scales;
};

/// What oneDNN is asked to do with sums of integers.
struct Epilogue {
  double scale = 1;
  std::vector<PostOp> post;
};

class CodesUser {
 public:
  CodesUser(PlanGraph& graph, const Program& program, PackedWeights& packed) : graph_(graph), packed_(packed) {
    for (size_t i = 0; i < program.steps().size(); ++i) {
      const Node& node = program.graph().nodes[i];
      if (node.op == "DequantizeLinear" && (node.domain.empty() || node.domain == kMicrosoft)) {
        dequantized_[program.steps()[i].outputs[0]] = {&node, &program.steps()[i]};
      }
    }
    for (const PlanOp& op : graph.ops) {
      for (const int32_t id : op.reads()) readers_[id].push_back(&op);
    }
  }

  void run() {
    std::vector<PlanOp> ops = graph_.ops;
    for (PlanOp& op : ops) {
      if (op.is("Conv") && use_conv(op)) continue;
      if (op.is("Add") && op.quantizer && use_add(op)) continue;
      note_grid(op);
      for (const int32_t id : op.reads()) provide_float(op, id);
      kept_.push_back(std::move(op));
    }
    const PlanOp last = kept_.empty() ? PlanOp() : kept_.back();
    for (const int32_t id : graph_.outputs) provide_float(last, id);
    graph_.ops = std::move(kept_);
  }

 private:
  std::optional<WeightCodes> weight_codes(int32_t weights) const {
    const auto made = dequantized_.find(weights);
    if (made == dequantized_.end()) return std::nullopt;
    const auto [node, step] = made->second;
    const ValueFacts& facts = graph_.facts(weights);
    if (!facts.is_static || facts.is_narrow() || facts.shape.size() != 4 || element_count(facts.shape) == 0) {
      return std::nullopt;
    }
    if (step->inputs.size() < 2 || step->inputs[1] < 0 || node->get_int("block_size", 0) != 0) return std::nullopt;
    const ValueFacts& scale = graph_.facts(step->inputs[1]);
    if (!scale.is_static || scale.type != DType::Float32 || scale.is_narrow()) return std::nullopt;
    const at::Tensor scales = scale.constant.tensor.reshape({-1});
    if (scales.numel() != 1 && (node->get_int("axis", 1) != 0 || scales.numel() != facts.shape[0])) return std::nullopt;
    const at::Tensor each = scales.expand({facts.shape[0]}).contiguous();
    const at::Tensor codes = packed_.codes(facts.constant.tensor, each);
    return codes.defined() ? std::optional(WeightCodes{codes, each}) : std::nullopt;
  }

  const Grid* grid_of(int32_t id) const {
    const auto found = grids_.find(id);
    return found == grids_.end() ? nullptr : &found->second;
  }

  bool is_image(int32_t id) const {
    const Shape& shape = graph_.facts(id).shape;
    return shape.size() == 4 && element_count(shape) > 0;
  }

  void note_grid(const PlanOp& op) {
    std::optional<Grid> grid;
    if (op.is("Conv")) grid = op.grid;
    if (op.quantizer) grid = op.quantizer->grid();
    if (const auto quantizer = flat_quantizer(graph_, op)) grid = quantizer->grid();
    if (op.is("MaxPool") && op.outputs.size() == 1 && grid_of(op.inputs[0]) != nullptr) grid = *grid_of(op.inputs[0]);
    if (grid && fits_codes(*grid) && is_image(op.outputs[0])) grids_[op.outputs[0]] = *grid;
  }

  PlanOp step_for(const PlanOp& reader, CodesOp codes, std::vector<int32_t> inputs, int32_t output) const {
    PlanOp op;
    op.step = reader.step;
    op.position = reader.position;
    op.inputs = std::move(inputs);
    op.outputs = {output};
    op.codes = std::make_shared<const CodesOp>(std::move(codes));
    return op;
  }

  /// What made `codes` of it stays with it, so that it can be told from others.
  void replace(PlanOp op, CodesOp codes, std::initializer_list<int32_t> inputs, int32_t output) {
    std::ranges::copy(inputs, op.inputs.begin());
    op.outputs = {output};
    op.codes = std::make_shared<const CodesOp>(std::move(codes));
    kept_.push_back(std::move(op));
  }

  int32_t add_codes(int32_t value) { return codes_[value] = graph_.first_codes + value; }

  /// The codes of a value with a grid, encoded now where it was made as float32.
  int32_t codes_of(const PlanOp& reader, int32_t value) {
    const auto known = codes_.find(value);
    if (known != codes_.end()) return known->second;
    CodesOp encode;
    encode.out = *grid_of(value);
    const int32_t id = add_codes(value);
    floats_.insert(value);
    kept_.push_back(step_for(reader, std::move(encode), {value}, id));
    return id;
  }

  /// Decodes a value that was made as codes, unless that has been done.
  void provide_float(const PlanOp& reader, int32_t value) {
    const auto made = codes_.find(value);
    if (made == codes_.end() || !floats_.insert(value).second) return;
    CodesOp decode;
    decode.kind = CodesOp::Kind::Decode;
    decode.in = {*grid_of(value)};
    kept_.push_back(step_for(reader, std::move(decode), {made->second}, value));
  }

  /// Whether somebody who reads this value might take its codes.
  bool is_wanted(int32_t value) const {
    const auto readers = readers_.find(value);
    return readers != readers_.end() && std::ranges::any_of(readers->second, [&](const PlanOp* op) {
             return (op->is("Conv") && op->inputs[0] == value && dequantized_.contains(op->inputs[1])) ||
                    (op->is("Add") && op->quantizer);
           });
  }

  /// The post-ops behind the sums' scale; nothing where one is not for integers.
  std::optional<Epilogue> epilogue(const PlanOp& op, const Grid* out) const {
    Epilogue made;
    std::vector<PostOp> post = op.post;
    if (!post.empty() && post.front().algorithm == algorithm::eltwise_linear && post.front().beta == 0) {
      made.scale = post.front().alpha;
      post.erase(post.begin());
    }
    for (PostOp& one : post) {
      if (one.operand < 0) continue;
      const std::optional<float> number = graph_.scalar(one.operand);
      if (one.algorithm != algorithm::binary_mul || !number) return std::nullopt;
      one = {algorithm::eltwise_linear, *number, 0};
    }
    if (out != nullptr) {
      // … round, clip, times step unless that is 1: codes are what is there before. Storing them rounds and clips, too.
      if (post.back().algorithm == algorithm::eltwise_linear) post.pop_back();
      const PostOp clip = post.back();
      post.resize(post.size() - 2);
      if (out->low != 0) post.push_back({algorithm::eltwise_round, 0, 0});
      if (clip.alpha > out->low || clip.beta < out->low + kSteps) post.push_back(clip);
      if (out->low != 0) post.push_back({algorithm::eltwise_linear, 1, -out->low});
    }
    // oneDNN's depthwise kernels mix up the numbers of two post-ops of one kind.
    for (size_t i = 0; i < post.size(); ++i) {
      for (size_t k = 0; k < i; ++k) {
        if (post[i].algorithm == post[k].algorithm) return std::nullopt;
      }
    }
    made.post = std::move(post);
    return made;
  }

  bool use_conv(const PlanOp& op) {
    const int32_t x = op.inputs[0];
    const Grid* in = grid_of(x);
    if (in == nullptr || !is_image(op.outputs[0])) return false;
    const std::optional<WeightCodes> weights = weight_codes(op.inputs[1]);
    if (!weights) return false;
    const int64_t groups = op.node->get_int("group", 1);
    // With one product for each sum of a window, a pass over memory costs more than is gained.
    if (groups > 1 && !codes_.contains(x)) return false;
    const int32_t y = op.outputs[0];
    const bool gives_codes = op.grid && fits_codes(*op.grid) && is_wanted(y);
    std::optional<CodesOp> codes = convolution(op, *in, *weights, groups, gives_codes);
    if (!codes) return false;
    const int32_t input = codes_of(op, x);
    if (op.grid && fits_codes(*op.grid)) grids_[y] = *op.grid;
    replace(op, std::move(*codes), {input}, gives_codes ? add_codes(y) : y);
    return true;
  }

  std::optional<CodesOp> convolution(const PlanOp& op, const Grid& in, const WeightCodes& weights, int64_t groups,
                                     bool gives_codes) const {
    const Shape& x_shape = graph_.facts(op.inputs[0]).shape;
    const Shape& y_shape = graph_.facts(op.outputs[0]).shape;
    const at::IntArrayRef w_shape = weights.codes.sizes();
    const std::optional<Epilogue> end = epilogue(op, gives_codes ? &*op.grid : nullptr);
    const int32_t b = op.inputs.size() > 2 ? op.inputs[2] : -1;
    if (!end || (b >= 0 && (!graph_.facts(b).is_static || graph_.facts(b).type != DType::Float32))) return std::nullopt;
    const SlidingWindow window = slide(window_attributes(*op.node), x_shape, {w_shape[2], w_shape[3]});
    const bool padded = std::ranges::any_of(window.begin, [](int64_t pad) { return pad != 0; }) ||
                        std::ranges::any_of(window.end, [](int64_t pad) { return pad != 0; });

    const auto channels = [&](int32_t id, double otherwise) {
      return id < 0 ? at::full({y_shape[1]}, otherwise, at::kDouble) : graph_.facts(id).constant.tensor.to(at::kDouble);
    };
    const at::Tensor fold = channels(op.fold_scale, 1);
    const at::Tensor unit = weights.scales.to(at::kDouble) * static_cast<double>(in.step) * fold;
    if (!(unit.abs() > 1e-30).logical_and(unit.abs() < 1e30).all().item<bool>()) return std::nullopt;
    at::Tensor bias = (channels(b, 0) * fold + channels(op.fold_shift, 0)) / unit;
    // Sums of codes that count from `low`: what is too much comes off here, unless a border has other sums.
    if (!padded) bias = bias + weights.codes.to(at::kDouble).sum({1, 2, 3}) * static_cast<double>(in.low);
    const at::Tensor scales = (unit * end->scale).to(at::kFloat);

    dnnl::primitive_attr attr = plan_attr();
    attr.set_output_scales(1 << 1, {scales.data_ptr<float>(), scales.data_ptr<float>() + scales.numel()});
    if (padded && in.low != 0) attr.set_zero_points(DNNL_ARG_SRC, 0, {static_cast<int32_t>(-in.low)});
    dnnl::post_ops posts;
    for (const PostOp& one : end->post) posts.append_eltwise(1, one.algorithm, one.alpha, one.beta);
    attr.set_post_ops(posts);

    CodesOp codes;
    codes.kind = CodesOp::Kind::Conv;
    codes.in = {in};
    if (gives_codes) codes.out = *op.grid;
    codes.weights = weights.codes;
    codes.bias = bias.to(at::kFloat).contiguous();
    Shape grouped(w_shape.begin(), w_shape.end());
    if (groups > 1) {
      grouped[0] /= groups;
      grouped.insert(grouped.begin(), groups);
    }
    codes.weights_desc = plain_desc(grouped);
    codes.weights_desc.data.data_type = dnnl_s8;
    Shape dilations = window.dilations;
    for (int64_t& dilation : dilations) --dilation;
    const dnnl::convolution_forward::desc form(
        dnnl::prop_kind::forward_inference, algorithm::convolution_direct,
        channels_last(x_shape, memory::data_type::u8), {grouped, memory::data_type::s8, memory::format_tag::any},
        plain_desc({y_shape[1]}), channels_last(y_shape, gives_codes ? memory::data_type::u8 : memory::data_type::f32),
        window.strides, dilations, window.begin, window.end);
    constexpr int64_t kPerFloat = 4;  // bytes are fetched and multiplied in the time of one float
    const int64_t products = element_count(y_shape) * (element_count(grouped) / std::max<int64_t>(y_shape[1], 1));
    codes.threads = ThreadScope::worth(
        products / kPerFloat, (element_count(x_shape) + element_count(grouped) + element_count(y_shape)) / kPerFloat);
    const ThreadScope scope(codes.threads);
    const dnnl::convolution_forward::primitive_desc made(form, attr, dnnl_cpu(), true);
    // Others multiply bytes to 16 bits, which saturate.
    if (!is_fast(made) || std::string_view(made.impl_info_str()).find("vnni") == std::string_view::npos) {
      return std::nullopt;
    }
    codes.convolution = made;
    return codes;
  }

  bool use_add(const PlanOp& op) {
    const int32_t a = op.inputs[0];
    const int32_t b = op.inputs[1];
    const std::optional<Grid> grid = op.quantizer->grid();
    if (!grid || !fits_codes(*grid) || grid_of(a) == nullptr || grid_of(b) == nullptr) return false;
    if (!codes_.contains(a) && !codes_.contains(b)) return false;
    CodesOp add;
    add.kind = CodesOp::Kind::Add;
    add.in = {*grid_of(a), *grid_of(b)};
    add.out = *grid;
    for (const PostOp& clip : op.post) add.clips.push_back({clip.alpha, clip.beta});
    const int32_t left = codes_of(op, a);
    const int32_t right = codes_of(op, b);
    grids_[op.outputs[0]] = *grid;
    replace(op, std::move(add), {left, right}, add_codes(op.outputs[0]));
    return true;
  }

  PlanGraph& graph_;
  PackedWeights& packed_;
  std::map<int32_t, std::pair<const Node*, const Step*>> dequantized_;  ///< by what is made
  std::map<int32_t, std::vector<const PlanOp*>> readers_;
  std::map<int32_t, Grid> grids_;     ///< of float32 values
  std::map<int32_t, int32_t> codes_;  ///< by the float32 value they stand for
  std::set<int32_t> floats_;          ///< of those, the ones that are there as float32 too
  std::vector<PlanOp> kept_;
};

}  // namespace

Desc channels_last(const Shape& shape, memory::data_type type) { return {shape, type, memory::format_tag::acdb}; }

void reserve_codes(PlanGraph& graph) {
  const bool has_pairs = !graph.made.empty();
  if (!has_pairs || std::ranges::none_of(graph.ops, [](const PlanOp& op) { return op.is("Conv"); })) return;
  const auto count = static_cast<int32_t>(graph.values.size());
  graph.first_codes = count;
  for (int32_t id = 0; id < count; ++id) {
    const ValueFacts& facts = graph.facts(id);
    const Shape& shape = facts.shape;
    if (facts.type == DType::Float32 && !facts.is_static && shape.size() == 4) {
      graph.add_value({{shape[0], shape[2], shape[3], shape[1]}, DType::UInt8, false, {}});
    } else {
      graph.values.push_back(nullptr);
      graph.is_output.push_back(false);
    }
  }
}

void use_codes(PlanGraph& graph, const Program& program, PackedWeights& packed) {
  if (graph.first_codes >= 0) CodesUser(graph, program, packed).run();
}

}  // namespace kaon
