#include <ATen/CPUGeneratorImpl.h>

#include <bit>

#include "engine/arith.h"

namespace kaon {

namespace {

/// Numbers that a `seed` attribute fixes: every call draws the same ones. Without it ATen's default generator goes on.
class Source {
 public:
  explicit Source(const OpInfo& info) {
    if (const float* seed = info.node().get_if<float>("seed")) seed_ = std::bit_cast<uint32_t>(*seed);
  }

  c10::optional<at::Generator> operator()() const {
    return seed_ ? c10::optional<at::Generator>(at::detail::createCPUGenerator(*seed_)) : c10::nullopt;
  }

 private:
  c10::optional<uint64_t> seed_;
};

c10::optional<DType> requested_type(const OpInfo& info) {
  if (info.node().find("dtype") == nullptr) return c10::nullopt;
  return static_cast<DType>(info.node().get_int("dtype", 0));
}

/// RandomNormal and RandomUniform, and their forms that take shape and type from an input.
KernelMaker random_numbers(bool normal, bool like) {
  return [=](const OpInfo& info) -> Kernel {
    const double mean = info.node().get_float("mean", 0);
    const double scale = info.node().get_float("scale", 1);
    const double low = info.node().get_float("low", 0);
    const double high = info.node().get_float("high", 1);
    const std::vector<int64_t> shape = info.node().get_ints("shape");
    return [=, source = Source(info), type = requested_type(info)](Call& call) {
      at::Tensor out = at::empty(like ? call.in(0).sizes() : at::IntArrayRef(shape), at::kFloat);
      normal ? out.normal_(mean, scale, source()) : out.uniform_(low, high, source());
      call.out(0, out, type ? *type : like ? call.type(0) : DType::Float32);
    };
  };
}

Kernel make_bernoulli(const OpInfo& info) {
  return [source = Source(info), type = requested_type(info)](Call& call) {
    call.out(0, at::bernoulli(widen(call.in(0)), source()), type ? *type : call.type(0));
  };
}

Kernel make_multinomial(const OpInfo& info) {
  const int64_t samples = info.node().get_int("sample_size", 1);
  const DType type = requested_type(info).value_or(DType::Int32);
  return [=, source = Source(info)](Call& call) {
    const at::Tensor probability = at::softmax(widen(call.in(0)), 1);
    call.out(0, at::multinomial(probability, samples, /*replacement=*/true, source()), type);
  };
}

OpFacts drawing() {
  OpFacts facts = fixed_shape();
  facts.random = true;
  return facts;
}

}  // namespace

void register_random(OpRegistry& ops) {
  ops.add("RandomNormal", random_numbers(true, false), drawing());
  ops.add("RandomNormalLike", random_numbers(true, true), drawing());
  ops.add("RandomUniform", random_numbers(false, false), drawing());
  ops.add("RandomUniformLike", random_numbers(false, true), drawing());
  ops.add("Bernoulli", make_bernoulli, drawing());
  ops.add("Multinomial", make_multinomial, drawing());
}

}  // namespace kaon
