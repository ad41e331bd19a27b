#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/op.h"

namespace kaon {

enum class Cell { Rnn, Gru, Lstm };

using Activation = std::function<at::Tensor(const at::Tensor&)>;

/// What RNN, GRU and LSTM nodes say in attributes.
struct RecurrentAttributes {
  Cell cell = Cell::Rnn;
  std::vector<bool> reverse;            ///< one entry for each direction
  std::vector<Activation> activations;  ///< all of the first direction, then all of the second
  float clip = 0;                       ///< 0: none
  bool batch_first = false;
  bool linear_before_reset = false;
  bool input_forget = false;
  bool usual = false;   ///< the activations that ONNX takes by default, no clip, a forget gate of its own
  Activation rounding;  ///< what matrix products see of inputs and states; empty: themselves

  int64_t directions() const { return std::ssize(reverse); }
};

RecurrentAttributes recurrent_attributes(const OpInfo& info, Cell cell);

/// The tensors of a recurrent layer in ONNX's layout, the first axis of each being the direction. Undefined: not given.
struct RecurrentInputs {
  at::Tensor x;           ///< [time, batch, input], or [batch, time, input] where batch_first
  at::Tensor weight;      ///< [directions, gates * hidden, input]
  at::Tensor recurrence;  ///< [directions, gates * hidden, hidden]
  at::Tensor bias;        ///< [directions, 2 * gates * hidden]
  at::Tensor lengths;     ///< [batch]
  at::Tensor initial_h;   ///< [directions, batch, hidden]; [batch, directions, hidden] where batch_first
  at::Tensor initial_c;   ///< as initial_h
  at::Tensor peepholes;   ///< [directions, 3 * hidden]
};

struct RecurrentOutputs {
  at::Tensor y;       ///< [time, directions, batch, hidden]; [batch, time, directions, hidden] where batch_first
  at::Tensor last_h;  ///< as initial_h
  at::Tensor last_c;  ///< as initial_h; LSTM only
};

RecurrentOutputs run_recurrent(const RecurrentAttributes& attributes, RecurrentInputs inputs);

// Of run_recurrent, for inputs that it has checked, the first axis of x and of the outputs being time.
/// Whether run_plain() can do it.
bool is_plain(const RecurrentAttributes& attributes, const RecurrentInputs& inputs);
RecurrentOutputs run_plain(const RecurrentAttributes& attributes, const RecurrentInputs& inputs);

}  // namespace kaon
