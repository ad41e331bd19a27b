#include "engine/arith.h"

namespace kaon {

namespace {

enum class Averaging { None, Sum, Mean };

struct LossOptions {
  Averaging averaging = Averaging::Mean;
  c10::optional<int64_t> ignored;

  explicit LossOptions(const OpInfo& info) {
    const std::string reduction = info.node().get_string("reduction", "mean");
    if (reduction == "none") {
      averaging = Averaging::None;
    } else if (reduction == "sum") {
      averaging = Averaging::Sum;
    } else if (reduction != "mean") {
      info.unsupported(fmt::format("reduction '{}'; none, sum and mean are known", reduction));
    }
    if (info.node().find("ignore_index") != nullptr) ignored = info.node().get_int("ignore_index", 0);
  }
};

/// The negated log probability of each target class; classes lie along axis 1. `weight` may be undefined.
at::Tensor likelihood_loss(const at::Tensor& log_probability, const at::Tensor& target, const at::Tensor& weight,
                           const LossOptions& options) {
  at::Tensor classes = target.to(at::kLong);
  at::Tensor kept = at::ones(classes.sizes(), log_probability.options());
  if (options.ignored) {
    const at::Tensor ignored = classes.eq(*options.ignored);
    classes = classes.masked_fill(ignored, 0);
    kept = kept.masked_fill(ignored, 0);
  }
  if (weight.defined()) kept = kept * at::index(weight, {classes});
  at::Tensor loss = -log_probability.gather(1, classes.unsqueeze(1)).squeeze(1) * kept;
  switch (options.averaging) {
    case Averaging::None: return loss;
    case Averaging::Sum: return loss.sum();
    case Averaging::Mean: break;
  }
  return loss.sum() / kept.sum();
}

at::Tensor weight_of(const Call& call) { return call.has(2) ? widen(call.in(2)) : at::Tensor(); }

Kernel make_likelihood_loss(const OpInfo& info) {
  return [options = LossOptions(info)](Call& call) {
    call.out(0, likelihood_loss(widen(call.in(0)), call.in(1), weight_of(call), options), call.type(0));
  };
}

Kernel make_cross_entropy(const OpInfo& info) {
  return [options = LossOptions(info)](Call& call) {
    const at::Tensor log_probability = at::log_softmax(widen(call.in(0)), 1);
    call.out(0, likelihood_loss(log_probability, call.in(1), weight_of(call), options), call.type(0));
    if (call.wants(1)) call.out(1, log_probability, call.type(0));
  };
}

Kernel make_mean_variance_normalization(const OpInfo& info) {
  constexpr double kEpsilon = 1e-9;
  const std::vector<int64_t> axes = info.node().get_ints("axes", {0, 2, 3});
  return unary([axes](const at::Tensor& x) {
    const at::Tensor centered = x - x.mean(axes, /*keepdim=*/true);
    return centered / ((centered * centered).mean(axes, /*keepdim=*/true).sqrt() + kEpsilon);
  });
}

}  // namespace

void register_loss(OpRegistry& ops) {
  ops.add("NegativeLogLikelihoodLoss", make_likelihood_loss, fixed_shape().with_any_ints());
  ops.add("SoftmaxCrossEntropyLoss", make_cross_entropy, fixed_shape().with_any_ints());
  ops.add("MeanVarianceNormalization", make_mean_variance_normalization, fixed_shape());
}

}  // namespace kaon
