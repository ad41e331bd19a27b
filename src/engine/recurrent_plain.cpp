// LSTM and GRU with the usual activations, in float32 and without gradients: a step is one pass over the recurrent
// weights and one over the gates, where tensor operations would be a dozen.
#include <bit>
#include <cmath>

#include "engine/plan/simd.h"
#include "engine/recurrent.h"

namespace kaon {

namespace {

/// e^x to 2 ulp, for |x| < 87, without branches.
inline float exponential(float x) {
  constexpr float kRound = 12582912.0F;  // 1.5 · 2^23: adding and taking it away rounds
  const float clamped = x > 87.0F ? 87.0F : x < -87.0F ? -87.0F : x;
  const float n = (clamped * 1.44269504F + kRound) - kRound;
  const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  const float result = (p * r * r + r + 1.0F) * power;
  return x != x ? x : result;
}
inline float sigmoid(float x) { return 1.0F / (1.0F + exponential(-x)); }
inline float hyperbolic(float x) { return 1.0F - 2.0F / (1.0F + exponential(2.0F * x)); }

/// out[j] += dot(weights[j], h)
KAON_SIMD void add_products(const float* weights, const float* h, float* out, int64_t rows, int64_t count) {
  for (int64_t j = 0; j < rows; ++j) {
    const float* row = weights + j * count;
    float parts[16] = {};
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
      for (int64_t k = 0; k < 16; ++k) parts[k] += row[i + k] * h[i + k];
    }
    float total = 0;
    for (const float part : parts) total += part;
    for (; i < count; ++i) total += row[i] * h[i];
    out[j] += total;
  }
}

/// Gates lie in the order input, output, forget, cell.
KAON_SIMD void lstm_gates(const float* gates, float* c, float* h, int64_t hidden) {
  for (int64_t i = 0; i < hidden; ++i) {
    const float kept = sigmoid(gates[2 * hidden + i]) * c[i];
    c[i] = kept + sigmoid(gates[i]) * hyperbolic(gates[3 * hidden + i]);
    h[i] = sigmoid(gates[hidden + i]) * hyperbolic(c[i]);
  }
}

/// Gates lie in the order update, reset, hidden.
KAON_SIMD void gru_reset(float* gates, const float* h, float* reset_h, int64_t hidden) {
  for (int64_t i = 0; i < 2 * hidden; ++i) gates[i] = sigmoid(gates[i]);
  for (int64_t i = 0; i < hidden; ++i) reset_h[i] = gates[hidden + i] * h[i];
}
KAON_SIMD void gru_gates(const float* gates, const float* memory, float* h, int64_t hidden) {
  for (int64_t i = 0; i < hidden; ++i) {
    const float candidate = hyperbolic(gates[2 * hidden + i] + memory[i]);
    h[i] = candidate + gates[i] * (h[i] - candidate);
  }
}
KAON_SIMD void multiply(const float* a, float* b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) b[i] *= a[i];
}

class PlainDirection {
 public:
  PlainDirection(const RecurrentAttributes& attributes, const RecurrentInputs& inputs, int64_t direction)
      : attributes_(attributes),
        recurrence_(inputs.recurrence[direction].contiguous()),
        hidden_(inputs.recurrence.size(2)),
        gates_((attributes.cell == Cell::Gru ? 3 : 4) * hidden_),
        batch_(inputs.x.size(1)) {
    const at::Tensor& x = inputs.x;
    const at::Tensor rows = x.reshape({x.size(0) * batch_, x.size(2)});
    const at::Tensor weight = inputs.weight[direction].t();
    if (inputs.bias.defined()) {
      const at::Tensor own = inputs.bias[direction].narrow(0, 0, gates_);
      at::Tensor recurrent = inputs.bias[direction].narrow(0, gates_, gates_);
      if (attributes.cell == Cell::Gru && attributes.linear_before_reset) {
        reset_bias_ = recurrent.narrow(0, 2 * hidden_, hidden_).contiguous();
        recurrent = at::cat({recurrent.narrow(0, 0, 2 * hidden_), at::zeros_like(reset_bias_)});
      }
      projected_ = at::addmm(own + recurrent, rows, weight).contiguous();
    } else {
      projected_ = at::mm(rows, weight).contiguous();
    }
    const auto state = [&](const at::Tensor& given) {
      return given.defined() ? given[direction].contiguous().clone() : at::zeros({batch_, hidden_}, x.options());
    };
    h_ = state(inputs.initial_h);
    if (attributes.cell == Cell::Lstm) c_ = state(inputs.initial_c);
  }

  /// Writes the states to `y`, whose rows of a step are `stride` apart.
  void run(bool reverse, int64_t steps, float* y, int64_t stride) {
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t time = reverse ? steps - 1 - i : i;
      float* gates = projected_.data_ptr<float>() + time * batch_ * gates_;
      attributes_.cell == Cell::Gru ? step_gru(gates) : step_lstm(gates);
      std::copy_n(h_.data_ptr<float>(), batch_ * hidden_, y + time * stride);
    }
  }

  const at::Tensor& h() const { return h_; }
  const at::Tensor& c() const { return c_; }

 private:
  /// out [batch, rows] += left [batch, hidden] times rows of the recurrent weights.
  void add_recurrent(const float* left, int64_t first, int64_t rows, float* out, int64_t out_stride) {
    const float* weights = recurrence_.data_ptr<float>() + first * hidden_;
    for (int64_t b = 0; b < batch_; ++b) {
      add_products(weights, left + b * hidden_, out + b * out_stride, rows, hidden_);
    }
  }

  void step_lstm(float* gates) {
    add_recurrent(h_.data_ptr<float>(), 0, gates_, gates, gates_);
    for (int64_t b = 0; b < batch_; ++b) {
      lstm_gates(gates + b * gates_, c_.data_ptr<float>() + b * hidden_, h_.data_ptr<float>() + b * hidden_, hidden_);
    }
  }

  void step_gru(float* gates) {
    const at::Tensor memory = reset_bias_.defined() ? reset_bias_.expand({batch_, hidden_}).contiguous().clone()
                                                    : at::zeros({batch_, hidden_}, h_.options());
    const at::Tensor reset_h = at::empty_like(h_);
    add_recurrent(h_.data_ptr<float>(), 0, 2 * hidden_, gates, gates_);
    for (int64_t b = 0; b < batch_; ++b) {
      gru_reset(gates + b * gates_, h_.data_ptr<float>() + b * hidden_, reset_h.data_ptr<float>() + b * hidden_,
                hidden_);
    }
    const bool linear = attributes_.linear_before_reset;
    const at::Tensor& left = linear ? h_ : reset_h;
    add_recurrent(left.data_ptr<float>(), 2 * hidden_, hidden_, memory.data_ptr<float>(), hidden_);
    for (int64_t b = 0; b < batch_; ++b) {
      float* row = memory.data_ptr<float>() + b * hidden_;
      if (linear) multiply(gates + b * gates_ + hidden_, row, hidden_);
      gru_gates(gates + b * gates_, row, h_.data_ptr<float>() + b * hidden_, hidden_);
    }
  }

  const RecurrentAttributes& attributes_;
  at::Tensor recurrence_;  // [gates, hidden]
  int64_t hidden_, gates_, batch_;
  at::Tensor projected_;  // [time * batch, gates]; a step's rows become its gates
  at::Tensor reset_bias_;
  at::Tensor h_, c_;
};

}  // namespace

bool is_plain(const RecurrentAttributes& attributes, const RecurrentInputs& inputs) {
  constexpr int64_t kManyRows = 16;  // from here on a matrix product makes more of the weights
  if (!attributes.usual || attributes.cell == Cell::Rnn || attributes.rounding) return false;
  if (inputs.lengths.defined() || inputs.peepholes.defined() || inputs.x.size(1) >= kManyRows) return false;
  for (const at::Tensor& tensor :
       {inputs.x, inputs.weight, inputs.recurrence, inputs.bias, inputs.initial_h, inputs.initial_c}) {
    if (!tensor.defined()) continue;
    if (tensor.scalar_type() != at::kFloat || (at::GradMode::is_enabled() && tensor.requires_grad())) return false;
  }
  return true;
}

RecurrentOutputs run_plain(const RecurrentAttributes& attributes, const RecurrentInputs& inputs) {
  const int64_t directions = attributes.directions();
  const int64_t steps = inputs.x.size(0), batch = inputs.x.size(1), hidden = inputs.recurrence.size(2);
  RecurrentOutputs outputs;
  outputs.y = at::empty({steps, directions, batch, hidden}, inputs.x.options());
  std::vector<at::Tensor> h, c;
  for (int64_t d = 0; d < directions; ++d) {
    PlainDirection direction(attributes, inputs, d);
    direction.run(attributes.reverse[static_cast<size_t>(d)], steps, outputs.y.data_ptr<float>() + d * batch * hidden,
                  directions * batch * hidden);
    h.push_back(direction.h());
    if (attributes.cell == Cell::Lstm) c.push_back(direction.c());
  }
  outputs.last_h = at::stack(h);
  if (!c.empty()) outputs.last_c = at::stack(c);
  return outputs;
}

}  // namespace kaon
