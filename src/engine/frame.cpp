#include <algorithm>

#include "engine/engine.h"
#include "engine/frame_state.h"

namespace kaon {

Frame::Frame(std::unique_ptr<State> state) : state_(std::move(state)) {}
Frame::Frame(const Frame& other) : state_(std::make_unique<State>(*other.state_)) {}
Frame& Frame::operator=(const Frame& other) {
  if (this != &other) state_ = std::make_unique<State>(*other.state_);
  return *this;
}
Frame::Frame(Frame&&) noexcept = default;
Frame& Frame::operator=(Frame&&) noexcept = default;
Frame::~Frame() = default;

int64_t Frame::position() const { return state_->position; }
int64_t Frame::node_count() const { return std::ssize(state_->program->steps()); }

void Frame::step() {
  if (done()) fail(ErrorCode::InvalidInput, "frame", "all nodes have run");
  const c10::InferenceMode inference;
  const auto index = static_cast<size_t>(state_->position);
  state_->program->run_step(index, state_->table);
  for (const int32_t id : state_->program->steps()[index].dead) {
    if (!state_->keep[static_cast<size_t>(id)]) state_->table[static_cast<size_t>(id)] = {};
  }
  ++state_->position;
}

void Frame::run_until(int64_t node) {
  if (node < position() || node > node_count()) {
    fail(ErrorCode::InvalidInput, "frame", "node {} is not between the position {} and the end {}", node, position(),
         node_count());
  }
  while (position() < node) step();
}

Tensor Frame::value(const std::string& name) const {
  const int32_t id = state_->program->find_value(name);
  if (id < 0) fail(ErrorCode::InvalidInput, name, "the model has no such value");
  const Value& value = state_->table[static_cast<size_t>(id)];
  if (!value.defined())
    fail(ErrorCode::InvalidInput, name, "this value is not made yet or was freed after its last use");
  return to_tensor(value);
}

void Frame::set(const std::string& name, const Tensor& tensor) {
  const int32_t id = state_->program->find_value(name);
  if (id < 0) fail(ErrorCode::InvalidInput, name, "the model has no such value");
  state_->table[static_cast<size_t>(id)] = to_value(tensor);
}

std::vector<Tensor> Frame::outputs() const {
  if (!done()) fail(ErrorCode::InvalidInput, "frame", "{} of {} nodes have run", position(), node_count());
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < state_->program->outputs().size(); ++i) {
    outputs.push_back(to_tensor(state_->program->output(state_->table, i)));
  }
  return outputs;
}

}  // namespace kaon
