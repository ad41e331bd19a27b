// FakeQuantize: in place and in the layout that the value has, wherever the spec allows it.
#include <algorithm>

#include "engine/plan/lowering.h"

namespace kaon {

bool Lowering::lower_fake_quantize(const PlanOp& op) {
  const int32_t x = op.inputs[0];
  const int32_t y = op.outputs[0];
  if (!is_float(x) || facts(x).is_static) return false;
  if (const auto quantizer = flat_quantizer(graph_, op)) {
    if (state(x).forms.empty() && state(x).pending) {
      Pending pending = *state(x).pending;
      pending.quantizers.push_back(quantizer);
      defer(y, std::move(pending));
      return true;
    }
    const Form form = first_form(x);
    const int32_t out = reuse_or_define(op, form.slot, y, form.desc);
    emit_quantize({.quantizer = quantizer}, form.desc, form.slot, out);
    return true;
  }

  const TensorSpec spec = fake_quantize_spec(*op.node);
  const auto input = [&](size_t i) { return i < op.inputs.size() ? op.inputs[i] : -1; };
  std::optional<QuantParams> params;
  if (input(1) >= 0) {
    if (!is_static_float(input(1)) || (input(2) >= 0 && !facts(input(2)).is_static)) return false;
    params.emplace();
    params->scale = to_tensor(facts(input(1)).constant).to_float();
    params->tiling = params->scale.size() == 1 ? Tiling::per_tensor(facts(x).shape) : tiling_of(spec, facts(x).shape);
    if (input(2) >= 0) {
      for (const int64_t zero : to_tensor(facts(input(2)).constant).to_int64()) {
        params->zero_point.push_back(static_cast<int32_t>(zero));
      }
    }
  }
  // The range of a whole tensor always takes 0 in, so padding does no harm.
  const bool any_layout = !params && spec.granularity == Granularity::PerTensor && !has_own_scales(spec) &&
                          spec.rounding != Rounding::Stochastic;
  const Form form = any_layout ? first_form(x) : Form{plain_desc(facts(x).shape), request_plain(x)};
  const int32_t out = reuse_or_define(op, form.slot, y, form.desc);
  const Shape shape = any_layout ? Shape{element_capacity(form.desc)} : facts(x).shape;
  emit(std::make_unique<QuantizeTensorAction>(spec, shape, std::move(params), form.slot, out), {form.slot}, {out});
  return true;
}

void Lowering::lower_add_quantize(const PlanOp& op) {
  int32_t a = op.inputs[0];
  int32_t b = op.inputs[1];
  const auto is_blocked = [&](int32_t id) { return !state(id).forms.empty() && !state(id).forms.front().is_plain; };
  if (facts(a).is_static || (!is_blocked(a) && is_blocked(b))) std::swap(a, b);
  const Desc desc = facts(a).is_static ? plain_desc(facts(a).shape) : first_form(a).desc;
  const int32_t left = request(a, desc);
  const int32_t right = request(b, desc);
  const int32_t out = reuse_or_define(op, may_overwrite(left, op) ? left : right, op.outputs[0], desc);
  QuantizeAction::Steps steps{right, {}, op.quantizer};
  for (const PostOp& clip : op.post) steps.clips.push_back({clip.alpha, clip.beta});
  touch(right);
  emit_quantize(std::move(steps), desc, left, out);
}

void Lowering::emit_quantize(QuantizeAction::Steps steps, const Desc& desc, int32_t in, int32_t out) {
  emit(std::make_unique<QuantizeAction>(std::move(steps), in, out, element_capacity(desc)), {in}, {out});
}

}  // namespace kaon
