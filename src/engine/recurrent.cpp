#include "engine/recurrent.h"

#include <algorithm>
#include <cctype>

namespace kaon {

namespace {

/// Takes the parameters of activations from the node's lists, each where the function has such a parameter.
class ActivationReader {
 public:
  explicit ActivationReader(const OpInfo& info) : info_(info) {
    if (const auto* given = info.node().get_if<std::vector<float>>("activation_alpha")) alphas_ = *given;
    if (const auto* given = info.node().get_if<std::vector<float>>("activation_beta")) betas_ = *given;
  }

  Activation read(const std::string& given) {
    std::string name = given;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == "sigmoid") return [](const at::Tensor& x) { return at::sigmoid(x); };
    if (name == "tanh") return [](const at::Tensor& x) { return at::tanh(x); };
    if (name == "relu") return [](const at::Tensor& x) { return at::relu(x); };
    if (name == "softsign") return [](const at::Tensor& x) { return x / (x.abs() + 1); };
    if (name == "softplus") return [](const at::Tensor& x) { return at::softplus(x); };
    if (name == "leakyrelu") {
      return [alpha = alpha(0.01F)](const at::Tensor& x) { return at::leaky_relu(x, alpha); };
    }
    if (name == "thresholdedrelu") {
      return [alpha = alpha(1)](const at::Tensor& x) { return at::threshold(x, alpha, 0); };
    }
    if (name == "elu") return [alpha = alpha(1)](const at::Tensor& x) { return at::elu(x, alpha); };
    if (name == "affine") {
      return [alpha = alpha(1), beta = beta(0)](const at::Tensor& x) { return x * alpha + beta; };
    }
    if (name == "scaledtanh") {
      return [alpha = alpha(1), beta = beta(1)](const at::Tensor& x) { return at::tanh(x * beta) * alpha; };
    }
    if (name == "hardsigmoid") {
      return [alpha = alpha(0.2F), beta = beta(0.5F)](const at::Tensor& x) { return (x * alpha + beta).clamp(0, 1); };
    }
    info_.unsupported("activation '" + given + "' is none that ONNX defines for recurrent layers");
  }

 private:
  float alpha(float otherwise) { return next_alpha_ < alphas_.size() ? alphas_[next_alpha_++] : otherwise; }
  float beta(float otherwise) { return next_beta_ < betas_.size() ? betas_[next_beta_++] : otherwise; }

  const OpInfo& info_;
  std::vector<float> alphas_;
  std::vector<float> betas_;
  size_t next_alpha_ = 0;
  size_t next_beta_ = 0;
};

std::vector<std::string> default_activations(Cell cell) {
  switch (cell) {
    case Cell::Rnn: return {"Tanh"};
    case Cell::Gru: return {"Sigmoid", "Tanh"};
    case Cell::Lstm: return {"Sigmoid", "Tanh", "Tanh"};
  }
  return {};
}

int64_t gate_count(Cell cell) { return cell == Cell::Rnn ? 1 : cell == Cell::Gru ? 3 : 4; }

/// One direction of a layer. Inputs lie as [time, batch, input], states as [batch, hidden].
class Direction {
 public:
  Direction(const RecurrentAttributes& attributes, const RecurrentInputs& inputs, int64_t direction)
      : attributes_(attributes),
        first_activation_(static_cast<size_t>(direction) * attributes.activations.size() / attributes.reverse.size()),
        recurrence_(inputs.recurrence[direction].t()),
        hidden_(inputs.recurrence.size(2)) {
    const at::Tensor& x = inputs.x;
    const int64_t gates = gate_count(attributes.cell) * hidden_;
    // Everything that does not depend on the state is computed for all steps at once.
    projected_ = at::matmul(seen(x), inputs.weight[direction].t());
    if (inputs.bias.defined()) {
      const at::Tensor own = inputs.bias[direction].narrow(0, 0, gates);
      at::Tensor recurrent = inputs.bias[direction].narrow(0, gates, gates);
      if (attributes.cell == Cell::Gru && attributes.linear_before_reset) {
        // The hidden gate's second bias is scaled by the reset gate with the state.
        reset_bias_ = recurrent.narrow(0, 2 * hidden_, hidden_);
        recurrent = at::cat({recurrent.narrow(0, 0, 2 * hidden_), at::zeros_like(reset_bias_)});
      }
      projected_ = projected_ + (own + recurrent);
    }
    const auto state = [&](const at::Tensor& given) {
      return given.defined() ? given[direction] : at::zeros({x.size(1), hidden_}, x.options());
    };
    h_ = state(inputs.initial_h);
    if (attributes.cell == Cell::Lstm) c_ = state(inputs.initial_c);
    if (inputs.peepholes.defined()) peepholes_ = inputs.peepholes[direction].reshape({3, hidden_});
    if (inputs.lengths.defined()) lengths_ = inputs.lengths.to(at::kLong).reshape({-1, 1});
  }

  /// [time, batch, hidden]
  at::Tensor run(bool reverse) {
    const int64_t steps = projected_.size(0);
    std::vector<at::Tensor> outputs(static_cast<size_t>(steps));
    for (int64_t i = 0; i < steps; ++i) {
      const int64_t time = reverse ? steps - 1 - i : i;
      const at::Tensor old_h = h_;
      const at::Tensor old_c = c_;
      step(projected_[time]);
      at::Tensor& output = outputs[static_cast<size_t>(time)];
      output = h_;
      if (!lengths_.defined()) continue;
      // Past its end a sequence keeps its state and yields zeros.
      const at::Tensor alive = lengths_.gt(time);
      output = h_ * alive;
      h_ = at::where(alive, h_, old_h);
      if (c_.defined()) c_ = at::where(alive, c_, old_c);
    }
    return steps == 0 ? at::zeros({0, h_.size(0), hidden_}, h_.options()) : at::stack(outputs);
  }

  const at::Tensor& h() const { return h_; }
  const at::Tensor& c() const { return c_; }

 private:
  at::Tensor seen(const at::Tensor& x) const { return attributes_.rounding ? attributes_.rounding(x) : x; }

  at::Tensor activate(size_t which, const at::Tensor& x) const {
    const Activation& function = attributes_.activations[first_activation_ + which];
    return function(attributes_.clip > 0 ? x.clamp(-attributes_.clip, attributes_.clip) : x);
  }

  void step(const at::Tensor& projected) {
    switch (attributes_.cell) {
      case Cell::Rnn: h_ = activate(0, at::addmm(projected, seen(h_), recurrence_)); return;
      case Cell::Gru: step_gru(projected); return;
      case Cell::Lstm: step_lstm(projected); return;
    }
  }

  void step_gru(const at::Tensor& projected) {
    const bool linear = attributes_.linear_before_reset;
    const int64_t early = (linear ? 3 : 2) * hidden_;
    const at::Tensor recurrent = at::matmul(seen(h_), recurrence_.narrow(1, 0, early));
    const at::Tensor both = projected.narrow(1, 0, 2 * hidden_) + recurrent.narrow(1, 0, 2 * hidden_);
    const at::Tensor gates = activate(0, both);
    const at::Tensor update = gates.narrow(1, 0, hidden_);
    const at::Tensor reset = gates.narrow(1, hidden_, hidden_);
    at::Tensor memory;
    if (linear) {
      memory = recurrent.narrow(1, 2 * hidden_, hidden_);
      if (reset_bias_.defined()) memory = memory + reset_bias_;
      memory = reset * memory;
    } else {
      memory = at::matmul(seen(reset * h_), recurrence_.narrow(1, 2 * hidden_, hidden_));
    }
    const at::Tensor candidate = activate(1, projected.narrow(1, 2 * hidden_, hidden_) + memory);
    h_ = candidate + update * (h_ - candidate);
  }

  /// Gates lie in the order input, output, forget, cell; peepholes as input, output, forget.
  void step_lstm(const at::Tensor& projected) {
    const at::Tensor gates = at::addmm(projected, seen(h_), recurrence_);
    at::Tensor input = gates.narrow(1, 0, hidden_);
    at::Tensor output = gates.narrow(1, hidden_, hidden_);
    at::Tensor forget = gates.narrow(1, 2 * hidden_, hidden_);
    if (peepholes_.defined()) {
      input = input + peepholes_[0] * c_;
      forget = forget + peepholes_[2] * c_;
    }
    input = activate(0, input);
    forget = attributes_.input_forget ? 1 - input : activate(0, forget);
    c_ = forget * c_ + input * activate(1, gates.narrow(1, 3 * hidden_, hidden_));
    if (peepholes_.defined()) output = output + peepholes_[1] * c_;
    h_ = activate(0, output) * activate_unclipped(2, c_);
  }

  at::Tensor activate_unclipped(size_t which, const at::Tensor& x) const {
    return attributes_.activations[first_activation_ + which](x);
  }

  const RecurrentAttributes& attributes_;
  size_t first_activation_;
  at::Tensor recurrence_;  // transposed: [hidden, gates * hidden]
  int64_t hidden_;
  at::Tensor projected_;  // [time, batch, gates * hidden]
  at::Tensor reset_bias_;
  at::Tensor h_;
  at::Tensor c_;
  at::Tensor peepholes_;
  at::Tensor lengths_;
};

RecurrentOutputs run_steps(const RecurrentAttributes& attributes, const RecurrentInputs& inputs) {
  std::vector<at::Tensor> y;
  std::vector<at::Tensor> h;
  std::vector<at::Tensor> c;
  for (int64_t d = 0; d < attributes.directions(); ++d) {
    Direction direction(attributes, inputs, d);
    y.push_back(direction.run(attributes.reverse[static_cast<size_t>(d)]));
    h.push_back(direction.h());
    if (attributes.cell == Cell::Lstm) c.push_back(direction.c());
  }
  return {at::stack(y, 1), at::stack(h), c.empty() ? at::Tensor() : at::stack(c)};
}

void require_shape(const at::Tensor& tensor, at::IntArrayRef shape, const char* name) {
  if (tensor.defined() && tensor.sizes() != shape) {
    fail(ErrorCode::InvalidInput, name, "its shape is {}, {} is needed", to_string(tensor.sizes()), to_string(shape));
  }
}

}  // namespace

RecurrentAttributes recurrent_attributes(const OpInfo& info, Cell cell) {
  const Node& node = info.node();
  RecurrentAttributes attributes;
  attributes.cell = cell;
  const std::string direction = node.get_string("direction", "forward");
  if (direction == "forward") {
    attributes.reverse = {false};
  } else if (direction == "reverse") {
    attributes.reverse = {true};
  } else if (direction == "bidirectional") {
    attributes.reverse = {false, true};
  } else {
    info.unsupported("direction '" + direction + "'; forward, reverse and bidirectional are known");
  }
  const std::vector<std::string> defaults = default_activations(cell);
  const size_t wanted = defaults.size() * attributes.reverse.size();
  std::vector<std::string> names;
  if (const auto* given = node.get_if<std::vector<std::string>>("activations")) names = *given;
  if (names.empty()) {
    for (size_t i = 0; i < wanted; ++i) names.push_back(defaults[i % defaults.size()]);
  }
  if (names.size() != wanted) info.unsupported(fmt::format("{} activations; {} are needed", names.size(), wanted));
  ActivationReader reader(info);
  for (const std::string& name : names) attributes.activations.push_back(reader.read(name));
  attributes.clip = node.get_float("clip", 0);
  attributes.batch_first = node.get_int("layout", 0) != 0;
  attributes.linear_before_reset = node.get_int("linear_before_reset", 0) != 0;
  attributes.input_forget = node.get_int("input_forget", 0) != 0;
  attributes.usual = attributes.clip == 0 && !attributes.input_forget;
  for (size_t i = 0; i < names.size(); ++i) attributes.usual &= names[i] == defaults[i % defaults.size()];
  return attributes;
}

RecurrentOutputs run_recurrent(const RecurrentAttributes& attributes, RecurrentInputs inputs) {
  const int64_t directions = attributes.directions();
  if (inputs.x.dim() != 3 || inputs.weight.dim() != 3 || inputs.recurrence.dim() != 3) {
    fail(ErrorCode::InvalidInput, "input 0", "X, W and R must be of rank 3");
  }
  if (attributes.batch_first) {
    inputs.x = inputs.x.transpose(0, 1);
    if (inputs.initial_h.defined()) inputs.initial_h = inputs.initial_h.transpose(0, 1);
    if (inputs.initial_c.defined()) inputs.initial_c = inputs.initial_c.transpose(0, 1);
  }
  const int64_t batch = inputs.x.size(1);
  const int64_t hidden = inputs.recurrence.size(2);
  const int64_t gates = gate_count(attributes.cell) * hidden;
  require_shape(inputs.weight, {directions, gates, inputs.x.size(2)}, "W");
  require_shape(inputs.recurrence, {directions, gates, hidden}, "R");
  require_shape(inputs.bias, {directions, 2 * gates}, "B");
  require_shape(inputs.lengths, {batch}, "sequence_lens");
  require_shape(inputs.initial_h, {directions, batch, hidden}, "initial_h");
  require_shape(inputs.initial_c, {directions, batch, hidden}, "initial_c");
  require_shape(inputs.peepholes, {directions, 3 * hidden}, "P");
  RecurrentOutputs outputs =
      is_plain(attributes, inputs) ? run_plain(attributes, inputs) : run_steps(attributes, inputs);
  if (attributes.batch_first) {
    outputs.y = outputs.y.permute({2, 0, 1, 3});
    outputs.last_h = outputs.last_h.transpose(0, 1);
    if (outputs.last_c.defined()) outputs.last_c = outputs.last_c.transpose(0, 1);
  }
  return outputs;
}

}  // namespace kaon
