// Float layers whose weights are stored in 2 to 8 bits.
#include <algorithm>

#include "engine/affine.h"
#include "engine/arith.h"
#include "engine/recurrent.h"

namespace kaon {

namespace {

struct NBits {
  int64_t k = 0;
  int64_t n = 0;
  int64_t bits = 4;
  int64_t block = 32;

  int64_t blocks() const { return (k + block - 1) / block; }
};

/// The codes in the bytes of the last axis, the low bits first: [..., bytes * 8 / bits].
at::Tensor unpack_codes(const at::Tensor& bytes, int64_t bits) {
  if (bits == 8) return bytes;
  std::vector<at::Tensor> parts;
  for (int64_t shift = 0; shift < 8; shift += bits) {
    parts.push_back(bytes.bitwise_right_shift(shift).bitwise_and((1 << bits) - 1));
  }
  return at::stack(parts, -1).flatten(-2);
}

void require_elements(const at::Tensor& tensor, int64_t wanted, const char* name) {
  if (tensor.numel() != wanted) {
    fail(ErrorCode::InvalidInput, name, "its shape is {}, {} elements are needed", to_string(tensor.sizes()), wanted);
  }
}

/// The zero point of every block: packed codes, numbers of their own, or the middle of the range.
at::Tensor block_zeros(const Call& call, const NBits& layer) {
  if (!call.has(3)) return at::full({}, static_cast<double>(int64_t{1} << (layer.bits - 1)), at::kFloat);
  const Value& zeros = call.value(3);
  if (zeros.type != DType::UInt8) {
    require_elements(zeros.tensor, layer.n * layer.blocks(), "zero_points");
    return to_float(zeros).reshape({layer.n, layer.blocks()});
  }
  const int64_t row = (layer.blocks() * layer.bits + 7) / 8;
  require_elements(zeros.tensor, layer.n * row, "zero_points");
  return unpack_codes(zeros.tensor.reshape({layer.n, row}), layer.bits).narrow(1, 0, layer.blocks()).to(at::kFloat);
}

/// The weight [N, K].
at::Tensor unpack_weight(const Call& call, const NBits& layer) {
  const int64_t blocks = layer.blocks();
  const int64_t bytes = layer.block * layer.bits / 8;
  require_elements(call.in(1), layer.n * blocks * bytes, "B");
  require_elements(call.in(2), layer.n * blocks, "scales");
  const at::Tensor codes = unpack_codes(call.in(1).reshape({layer.n, blocks, bytes}), layer.bits).to(at::kFloat);
  const at::Tensor scales = to_float(call.value(2)).reshape({layer.n, blocks});
  const at::Tensor zeros = block_zeros(call, layer);
  if (!call.has(4)) {
    const at::Tensor centre = zeros.dim() == 0 ? zeros : zeros.unsqueeze(-1);
    return ((codes - centre) * scales.unsqueeze(-1)).reshape({layer.n, -1}).narrow(1, 0, layer.k);
  }
  // Each column names its own group.
  const at::Tensor group = call.in(4).to(at::kLong).reshape({-1}).narrow(0, 0, layer.k);
  const at::Tensor flat = codes.reshape({layer.n, -1}).narrow(1, 0, layer.k);
  const at::Tensor centre = zeros.dim() == 0 ? zeros : zeros.index_select(1, group);
  return (flat - centre) * scales.index_select(1, group);
}

Kernel make_matmul_nbits(const OpInfo& info) {
  const Node& node = info.node();
  const NBits layer{node.get_int("K", 0), node.get_int("N", 0), node.get_int("bits", 4), node.get_int("block_size", 0)};
  if (layer.bits != 2 && layer.bits != 4 && layer.bits != 8) {
    info.unsupported(fmt::format("bits is {}; 2, 4 and 8 are known", layer.bits));
  }
  constexpr int64_t kMost = int64_t{1} << 24;
  if (layer.k < 1 || layer.k > kMost || layer.n < 1 || layer.n > kMost || layer.block < 8 || layer.block > kMost) {
    fail(ErrorCode::InvalidInput, node.label(), "K {}, N {} and block_size {} give no matrix", layer.k, layer.n,
         layer.block);
  }
  return [layer](Call& call) {
    const at::Tensor weight = unpack_weight(call, layer);
    at::Tensor y = at::matmul(widen(call.in(0)).to(at::kFloat), weight.t());
    if (call.has(5)) y = y + to_float(call.value(5));
    call.out(0, y, call.type(0));
  };
}

/// Inputs `weight`, `scale` and scale + 1: codes [directions, rows, gates], one scale for all, each direction or each
/// gate. Given back in the layout of LSTM, [directions, gates, rows].
at::Tensor lstm_weight(const Call& call, size_t weight, size_t scale) {
  const auto spread = [](const at::Tensor& parameter) {
    if (!parameter.defined() || parameter.numel() == 1) return parameter.defined() ? parameter.reshape({}) : parameter;
    return parameter.dim() == 1 ? parameter.reshape({-1, 1, 1}) : parameter.unsqueeze(1);
  };
  const at::Tensor numbers = centred(call.value(weight), spread(zero_point(call, scale + 1))).to(at::kFloat);
  return (numbers * spread(to_float(call.value(scale)))).transpose(1, 2);
}

/// The numbers that 8-bit codes over the range of `x` stand for.
at::Tensor rounded_to_codes(const at::Tensor& x) {
  const DynamicCodes dynamic = quantize_dynamic(x);
  return centred(dynamic.codes, dynamic.zero).to(at::kFloat) * dynamic.scale;
}

Kernel make_dynamic_lstm(const OpInfo& info) {
  RecurrentAttributes attributes = recurrent_attributes(info, Cell::Lstm);
  attributes.rounding = rounded_to_codes;
  return [attributes](Call& call) {
    RecurrentInputs inputs;
    inputs.x = call.in(0);
    inputs.weight = lstm_weight(call, 1, 8);
    inputs.recurrence = lstm_weight(call, 2, 10);
    inputs.bias = optional_input(call, 3);
    inputs.lengths = call.has(4) ? call.in(4) : at::Tensor();
    inputs.initial_h = optional_input(call, 5);
    inputs.initial_c = optional_input(call, 6);
    inputs.peepholes = optional_input(call, 7);
    const RecurrentOutputs outputs = run_recurrent(attributes, std::move(inputs));
    call.out(0, outputs.y);
    call.out(1, outputs.last_h);
    call.out(2, outputs.last_c);
  };
}

}  // namespace

void register_nbits(OpRegistry& ops) {
  ops.add("MatMulNBits", make_matmul_nbits, fixed_shape(), kMicrosoft);
  ops.add("DynamicQuantizeLSTM", make_dynamic_lstm, fixed_shape(), kMicrosoft);
}

}  // namespace kaon
