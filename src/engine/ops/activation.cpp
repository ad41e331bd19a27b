#include "engine/arith.h"

namespace kaon {

namespace {

/// A maker for a function of one tensor and one float attribute.
template <typename Function>
KernelMaker with_float(const char* attribute, float otherwise, Function function) {
  return [=](const OpInfo& info) {
    const double number = info.node().get_float(attribute, otherwise);
    return unary([function, number](const at::Tensor& x) { return function(x, number); });
  };
}

Kernel make_selu(const OpInfo& info) {
  const bool first = info.opset() < 6;
  const double alpha = info.node().get_float("alpha", first ? 1.6732F : 1.67326319217681884765625F);
  const double gamma = info.node().get_float("gamma", first ? 1.0507F : 1.05070102214813232421875F);
  return unary([alpha, gamma](const at::Tensor& x) { return at::elu(x, alpha, gamma); });
}

Kernel make_hard_sigmoid(const OpInfo& info) {
  const double alpha = info.node().get_float("alpha", 0.2F);
  const double beta = info.node().get_float("beta", 0.5F);
  return unary([alpha, beta](const at::Tensor& x) { return at::clamp(x * alpha + beta, 0, 1); });
}

Kernel make_shrink(const OpInfo& info) {
  const double lambda = info.node().get_float("lambd", 0.5F);
  const double bias = info.node().get_float("bias", 0.0F);
  return unary([lambda, bias](const at::Tensor& x) {
    const at::Tensor zero = at::zeros({}, x.options());
    const at::Tensor below = at::where(x.lt(-lambda), (x + bias).to(x.scalar_type()), zero);
    return at::where(x.gt(lambda), (x - bias).to(x.scalar_type()), below);
  });
}

Kernel make_prelu(const OpInfo& info) {
  const bool by_channel = info.opset() < 7;
  return [by_channel](Call& call) {
    const at::Tensor x = widen(call.in(0));
    at::Tensor slope = widen(call.in(1));
    if (by_channel && slope.dim() == 1 && x.dim() > 2) {
      std::vector<int64_t> shape(static_cast<size_t>(x.dim()) - 1, 1);
      shape[0] = slope.size(0);
      slope = slope.reshape(shape);
    }
    call.out(0, at::where(x.lt(0), x * slope, x), call.type(0));
  };
}

Kernel make_gelu(const OpInfo& info) {
  const std::string approximate = info.node().get_string("approximate", "none");
  if (approximate != "none" && approximate != "tanh") {
    info.unsupported(fmt::format("approximate '{}'; none and tanh are known", approximate));
  }
  return unary([approximate](const at::Tensor& x) { return at::gelu(x, approximate); });
}

at::Tensor hardmax(const at::Tensor& x, int64_t axis) {
  return at::zeros_like(x).scatter(axis, at::argmax(x, axis, /*keepdim=*/true), 1);
}

/// Before opset 13 these operators saw a matrix: the dimensions from `axis` on were one.
template <typename Function>
KernelMaker along_axis(Function function) {
  return [function](const OpInfo& info) -> Kernel {
    const bool as_matrix = info.opset() < 13;
    const int64_t axis = info.node().get_int("axis", as_matrix ? 1 : -1);
    return [=](Call& call) {
      const at::Tensor x = widen(call.in(0));
      const int64_t split = as_matrix && axis == x.dim() ? axis : wrap_axis(axis, x.dim());
      if (call.shapes_only()) return call.out_zeros(0, x.sizes(), call.type(0));
      if (!as_matrix) return call.out(0, function(x, split), call.type(0));
      const int64_t rows = c10::multiply_integers(x.sizes().slice(0, static_cast<size_t>(split)));
      const int64_t columns = c10::multiply_integers(x.sizes().slice(static_cast<size_t>(split)));
      call.out(0, function(x.reshape({rows, columns}), 1).reshape(x.sizes()), call.type(0));
    };
  };
}

Kernel make_biased_gelu(const char* approximate) {
  return [approximate](Call& call) {
    const at::Tensor x = widen(call.in(0));
    call.out(0, at::gelu(call.has(1) ? x + widen(call.in(1)) : x, approximate), call.type(0));
  };
}

at::Tensor swish(const at::Tensor& x, double alpha) { return x * at::sigmoid(x * alpha); }

OpFacts along_one_axis() {
  return fixed_shape().where([](const NodeView& view, OpFacts& facts) {
    const std::optional<Shape> shape = view.shape(0);
    // The default is 1, or, since opset 13, the last.
    const std::optional<int64_t> axis = view.axis(view.node.get_int("axis", shape && shape->size() == 1 ? 0 : 1));
    if (axis && *axis >= 1) facts.samples = Samples::First;
  });
}

}  // namespace

void register_activation(OpRegistry& ops) {
  ops.add_simple("Relu", unary([](const at::Tensor& x) { return at::relu(x); }),
                 per_sample().with(Homogeneous::Channels).with(FlowKind::Moves).that_clips());
  ops.add_simple("Sigmoid", unary([](const at::Tensor& x) { return at::sigmoid(x); }), per_sample());
  ops.add_simple("Tanh", unary([](const at::Tensor& x) { return at::tanh(x); }), per_sample());
  ops.add_simple("HardSwish", unary([](const at::Tensor& x) { return at::hardswish(x); }), per_sample());
  ops.add_simple("Softplus", unary([](const at::Tensor& x) { return at::softplus(x); }), per_sample());
  ops.add_simple("Softsign", unary([](const at::Tensor& x) { return x / (at::abs(x) + 1); }), per_sample());
  ops.add_simple("Mish", unary([](const at::Tensor& x) { return at::mish(x); }), per_sample());
  ops.add("LeakyRelu",
          with_float("alpha", 0.01F, [](const at::Tensor& x, double alpha) { return at::leaky_relu(x, alpha); }),
          per_sample().with(Homogeneous::Channels));
  ops.add("Elu", with_float("alpha", 1.0F, [](const at::Tensor& x, double alpha) { return at::elu(x, alpha); }),
          per_sample());
  ops.add("Celu",
          with_float("alpha", 1.0F, [](const at::Tensor& x, double alpha) { return at::elu(x, alpha, 1, 1 / alpha); }),
          per_sample());
  ops.add("ThresholdedRelu",
          with_float("alpha", 1.0F, [](const at::Tensor& x, double alpha) { return at::threshold(x, alpha, 0); }),
          per_sample());
  ops.add("Swish", with_float("alpha", 1.0F, swish), per_sample());
  ops.add("Selu", make_selu, per_sample());
  ops.add("HardSigmoid", make_hard_sigmoid, per_sample());
  ops.add("Shrink", make_shrink, per_sample());
  ops.add("PRelu", make_prelu, fixed_shape().with(Samples::Broadcast).with(Homogeneous::Channels));
  ops.add("Gelu", make_gelu, per_sample());
  ops.add("Softmax", along_axis([](const at::Tensor& x, int64_t axis) { return at::softmax(x, axis); }),
          along_one_axis());
  ops.add("LogSoftmax", along_axis([](const at::Tensor& x, int64_t axis) { return at::log_softmax(x, axis); }),
          along_one_axis());
  ops.add("Hardmax", along_axis(hardmax), along_one_axis());

  ops.add_simple("Gelu", make_biased_gelu("none"), per_sample(), kMicrosoft);
  ops.add_simple("BiasGelu", make_biased_gelu("none"), fixed_shape(), kMicrosoft);
  ops.add_simple("FastGelu", make_biased_gelu("tanh"), per_sample(), kMicrosoft);
  ops.add("QuickGelu", with_float("alpha", 1.702F, swish), per_sample(), kMicrosoft);
}

}  // namespace kaon
