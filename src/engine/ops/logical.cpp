// Comparisons, logic and selection: whatever makes or reads bools.
#include "engine/arith.h"

namespace kaon {

namespace {

using Comparison = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

KernelMaker compare(Comparison function) {
  return [function](const OpInfo& info) -> Kernel {
    return [function, inputs = BinaryInputs(info)](Call& call) {
      const auto [a, b] = inputs(call);
      if (call.shapes_only()) return call.out_zeros(0, at::infer_size(a.sizes(), b.sizes()), DType::Bool);
      const DType type = call.type(0);
      call.out(0, function(flip_order(widen(a), type), flip_order(widen(b), type)));
    };
  };
}

Kernel make_is_inf(const OpInfo& info) {
  const bool negative = info.node().get_int("detect_negative", 1) != 0;
  const bool positive = info.node().get_int("detect_positive", 1) != 0;
  return [negative, positive](Call& call) {
    const at::Tensor x = widen(call.in(0));
    at::Tensor found = at::isinf(x);
    if (!negative) found = found.logical_and(x.gt(0));
    if (!positive) found = found.logical_and(x.lt(0));
    call.out(0, found);
  };
}

void select(Call& call) {
  if (call.shapes_only()) {
    const auto values = at::infer_size(call.in(1).sizes(), call.in(2).sizes());
    return call.out_zeros(0, at::infer_size(call.in(0).sizes(), values), call.type(1));
  }
  call.out(0, at::where(call.in(0), call.in(1), call.in(2)), call.type(1));
}

}  // namespace

void register_logical(OpRegistry& ops) {
  ops.add("And", compare(at::logical_and), broadcasting());
  ops.add("Or", compare(at::logical_or), broadcasting());
  ops.add("Xor", compare(at::logical_xor), broadcasting());
  ops.add_simple(
      "Not", [](Call& call) { call.out(0, at::logical_not(call.in(0))); }, per_sample());
  ops.add("Equal", compare(at::eq), broadcasting());
  ops.add("Greater", compare(at::gt), broadcasting());
  ops.add("Less", compare(at::lt), broadcasting());
  ops.add("GreaterOrEqual", compare(at::ge), broadcasting());
  ops.add("LessOrEqual", compare(at::le), broadcasting());
  ops.add_simple(
      "IsNaN", [](Call& call) { call.out(0, at::isnan(widen(call.in(0)))); }, per_sample());
  ops.add("IsInf", make_is_inf, per_sample());
  ops.add_simple("Where", select, broadcasting());
}

}  // namespace kaon
