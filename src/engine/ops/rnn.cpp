#include "engine/arith.h"
#include "engine/recurrent.h"

namespace kaon {

namespace {

Kernel make_recurrent(const OpInfo& info, Cell cell) {
  return [attributes = recurrent_attributes(info, cell)](Call& call) {
    RecurrentInputs inputs;
    inputs.x = widen(call.in(0));
    inputs.weight = widen(call.in(1));
    inputs.recurrence = widen(call.in(2));
    inputs.bias = optional_input(call, 3);
    inputs.lengths = call.has(4) ? call.in(4) : at::Tensor();
    inputs.initial_h = optional_input(call, 5);
    if (attributes.cell == Cell::Lstm) {
      inputs.initial_c = optional_input(call, 6);
      inputs.peepholes = optional_input(call, 7);
    }
    const RecurrentOutputs outputs = run_recurrent(attributes, std::move(inputs));
    call.out(0, outputs.y, call.type(0));
    call.out(1, outputs.last_h, call.type(0));
    if (attributes.cell == Cell::Lstm) call.out(2, outputs.last_c, call.type(0));
  };
}

}  // namespace

void register_rnn(OpRegistry& ops) {
  ops.add(
      "RNN", [](const OpInfo& info) { return make_recurrent(info, Cell::Rnn); }, fixed_shape());
  ops.add(
      "GRU", [](const OpInfo& info) { return make_recurrent(info, Cell::Gru); }, fixed_shape());
  ops.add(
      "LSTM", [](const OpInfo& info) { return make_recurrent(info, Cell::Lstm); }, fixed_shape());
}

}  // namespace kaon
