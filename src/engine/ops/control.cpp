#include <algorithm>
#include <limits>
#include <mutex>

#include "base/memory_budget.h"
#include "engine/arith.h"
#include "engine/plan/plan.h"
#include "engine/program.h"

namespace kaon {

namespace {

bool truth(const at::Tensor& tensor) {
  if (tensor.numel() != 1) {
    fail(ErrorCode::InvalidInput, "condition", "its shape is {}, one bool is needed", to_string(tensor.sizes()));
  }
  return tensor.item().toBool();
}

void require_count(size_t got, size_t wanted, const char* what) {
  if (got != wanted) fail(ErrorCode::InvalidInput, what, "there are {}, {} are needed", got, wanted);
}

/// Nothing collected: the shape is 0, then what the body says of one element; unknown dimensions are 0 too.
Value empty_stack(const ValueInfo& element, int64_t axis) {
  if (element.type == DType::Undefined) {
    fail(ErrorCode::InvalidInput, element.name, "the body ran no iteration and does not say the type of this output");
  }
  std::vector<int64_t> shape;
  if (element.shape) {
    for (const Dim& dim : *element.shape) shape.push_back(dim.value.value_or(0));
  }
  shape.insert(shape.begin() + wrap_axis(axis, std::ssize(shape) + 1), 0);
  return {at::empty(shape, carrier(element.type)), element.type};
}

Value stack(const std::vector<Value>& values, int64_t axis) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(values.size());
  for (const Value& value : values) {
    if (value.type != values.front().type) {
      fail(ErrorCode::InvalidInput, "scan output", "the body gives {} in one iteration and {} in another",
           name_of(values.front().type), name_of(value.type));
    }
    tensors.push_back(value.tensor);
  }
  return {at::stack(tensors, axis), values.front().type};
}

/// A branch of an If, with plans of its own: it may hold the whole network.
class Branch {
 public:
  explicit Branch(Subgraph graph) : graph_(std::move(graph)), planned_(std::make_shared<Planned>(graph_.program)) {}

  std::vector<Value> run(const Call& call) const {
    const bool plannable = c10::InferenceMode::is_enabled() && !call.shapes_only();
    if (plannable) {
      const std::unique_lock lock(planned_->mutex, std::try_to_lock);  // frames share programs
      if (lock) return planned_->plans.run_inputs(graph_.arguments(call, {}));
    }
    return graph_.run(call, {});
  }

 private:
  struct Planned {
    explicit Planned(std::shared_ptr<const Program> program) : plans(std::move(program)) {}
    std::mutex mutex;
    Plans plans;
  };
  Subgraph graph_;
  std::shared_ptr<Planned> planned_;
};

Kernel make_if(const OpInfo& info) {
  const auto branch = [&](const char* attribute) {
    Subgraph graph = info.subgraph(attribute);
    require_count(graph.program->graph().outputs.size(), info.output_count(), "outputs of a branch");
    return Branch(std::move(graph));
  };
  return [then_branch = branch("then_branch"), else_branch = branch("else_branch")](Call& call) {
    std::vector<Value> outputs = (truth(call.in(0)) ? then_branch : else_branch).run(call);
    for (size_t i = 0; i < outputs.size(); ++i) call.out(i, std::move(outputs[i]));
  };
}

/// Whether a loop's body hands its condition on, so that only the trip count ends it.
bool hands_condition_on(const Graph& body) {
  const std::string& out = body.outputs.front().name;
  const std::string& in = body.inputs[1].name;
  return out == in || std::ranges::any_of(body.nodes, [&](const Node& node) {
           return node.op == "Identity" && node.inputs.size() == 1 && node.inputs[0] == in &&
                  node.outputs.size() == 1 && node.outputs[0] == out;
         });
}

/// Throws where the elements that so many trips collect do not fit in memory.
void require_trips(int64_t trips, size_t collected) {
  constexpr int64_t kElementBytes = 256;  // a tensor, however small
  const int64_t each = kElementBytes * static_cast<int64_t>(collected);
  const int64_t most = each > 0 ? std::numeric_limits<int64_t>::max() / each : 0;
  require_memory(std::clamp<int64_t>(trips, 0, most) * each, "trip count");
}

/// The most iterations of a loop that are run: where nothing is collected, no memory bounds a number that a file gives.
/// A small body may run more often.
int64_t most_trips(const Graph& body) {
  constexpr int64_t kMostSteps = int64_t{1} << 21;
  return std::clamp<int64_t>(kMostSteps / (std::ssize(body.nodes) + 1), 1 << 16, 1 << 20);
}

/// The iterations of a loop, counted with those of the loops around it: their numbers multiply.
class Trips {
 public:
  /// `asked`: how many there will be, where that is known; else 1.
  Trips(int64_t asked, int64_t most) : most_(most), around_(innermost_) {
    require(asked, most_);
    if (around_ != nullptr) require(asked * around_->asked_, kMostInAll);
    asked_ = around_ == nullptr ? asked : asked * around_->asked_;
    innermost_ = this;
  }
  ~Trips() { innermost_ = around_; }
  Trips(const Trips&) = delete;
  Trips& operator=(const Trips&) = delete;

  void next() {
    if (++count_ > most_) not_ended(most_);
    Trips* outermost = this;
    while (outermost->around_ != nullptr) outermost = outermost->around_;
    if (++outermost->in_all_ > kMostInAll) not_ended(kMostInAll);
  }

 private:
  static constexpr int64_t kMostInAll = int64_t{1} << 21;
  static void require(int64_t asked, int64_t most) {
    if (asked <= most) return;
    fail(ErrorCode::InvalidInput, "trip count", "the loop asks for {} iterations; at most {} are run", asked, most);
  }
  [[noreturn]] static void not_ended(int64_t most) {
    fail(ErrorCode::InvalidInput, "trip count", "the loop has not ended after {} iterations, the most that are run",
         most);
  }
  static thread_local Trips* innermost_;
  int64_t most_, asked_ = 0, count_ = 0, in_all_ = 0;
  Trips* around_;
};
thread_local Trips* Trips::innermost_ = nullptr;

/// Inputs: trip count, condition, carried values. The body maps (iteration, condition, carried) to (condition,
/// carried, one element of each scan output).
Kernel make_loop(const OpInfo& info) {
  const Subgraph body = info.subgraph("body");
  if (info.input_count() < 2) fail(ErrorCode::InvalidInput, info.node().label(), "it has no condition input");
  const size_t carried_count = info.input_count() - 2;
  const std::vector<ValueInfo>& elements = body.program->graph().outputs;
  require_count(body.program->graph().inputs.size(), 2 + carried_count, "inputs of the loop's body");
  if (elements.size() <= carried_count) require_count(elements.size(), 1 + carried_count, "outputs of the loop's body");
  const bool runs_all = hands_condition_on(body.program->graph());
  return [body, carried_count, runs_all, most = most_trips(body.program->graph())](Call& call) {
    const bool bounded = call.has(0);
    const int64_t trips = bounded ? call.in(0).item().toLong() : 0;
    bool go_on = !call.has(1) || truth(call.in(1));
    std::vector<Value> carried;
    for (size_t i = 0; i < carried_count; ++i) carried.push_back(call.value(2 + i));
    const std::vector<ValueInfo>& infos = body.program->graph().outputs;
    std::vector<std::vector<Value>> collected(infos.size() - 1 - carried_count);
    const bool known = bounded && go_on && runs_all;
    if (known) require_trips(trips, collected.size());
    Trips counted(known ? std::max<int64_t>(trips, 1) : 1, most);
    const at::Tensor still = at::scalar_tensor(true, at::kBool);
    for (int64_t trip = 0; go_on && (!bounded || trip < trips); ++trip) {
      counted.next();
      std::vector<Value> inputs{{at::scalar_tensor(trip, at::kLong), DType::Int64}, {still, DType::Bool}};
      std::move(carried.begin(), carried.end(), std::back_inserter(inputs));
      std::vector<Value> outputs = body.run(call, std::move(inputs));
      go_on = truth(outputs[0].tensor);
      const auto first = outputs.begin() + 1;
      carried.assign(first, first + static_cast<int64_t>(carried_count));
      for (size_t i = 0; i < collected.size(); ++i) collected[i].push_back(std::move(outputs[1 + carried_count + i]));
    }
    for (size_t i = 0; i < carried_count; ++i) call.out(i, std::move(carried[i]));
    for (size_t i = 0; i < collected.size(); ++i) {
      const ValueInfo& element = infos[1 + carried_count + i];
      call.out(carried_count + i, collected[i].empty() ? empty_stack(element, 0) : stack(collected[i], 0));
    }
  };
}

/// The attribute's entries, one for each of `count`, zeros when it is not there.
std::vector<int64_t> one_each(const OpInfo& info, const char* attribute, size_t count) {
  std::vector<int64_t> values = info.node().get_ints(attribute, std::vector<int64_t>(count, 0));
  if (values.size() != count) {
    fail(ErrorCode::InvalidInput, info.node().label(), "'{}' has {} entries, {} are needed", attribute, values.size(),
         count);
  }
  return values;
}

/// The body maps (states, one element of each scan input) to (states, one element of each scan output).
class ScanLoop {
 public:
  ScanLoop(const OpInfo& info, size_t first_input) : body_(info.subgraph("body")), first_(first_input) {
    const int64_t scanned = info.node().get_int("num_scan_inputs", 0);
    const size_t inputs = info.input_count();
    const Graph& graph = body_.program->graph();
    if (scanned < 1 || static_cast<size_t>(scanned) + first_ > inputs) {
      fail(ErrorCode::InvalidInput, info.node().label(), "'num_scan_inputs' is {}, the node has {} inputs", scanned,
           inputs);
    }
    scanned_ = static_cast<size_t>(scanned);
    states_ = inputs - first_ - scanned_;
    require_count(graph.inputs.size(), states_ + scanned_, "inputs of the scan's body");
    if (graph.outputs.size() < states_) require_count(graph.outputs.size(), states_, "outputs of the scan's body");
    collected_ = graph.outputs.size() - states_;
    const bool batched = first_ == 1;
    in_reverse_ = one_each(info, batched ? "directions" : "scan_input_directions", scanned_);
    in_axes_ = one_each(info, "scan_input_axes", scanned_);
    out_reverse_ = one_each(info, "scan_output_directions", collected_);
    out_axes_ = one_each(info, "scan_output_axes", collected_);
  }

  /// One sequence. `inputs` are the states and the scan inputs; gives the last states and the stacked outputs.
  std::vector<Value> run(const Call& call, std::vector<Value> inputs) const {
    const int64_t length = sequence_length(inputs);
    std::vector<Value> states(inputs.begin(), inputs.begin() + static_cast<int64_t>(states_));
    std::vector<std::vector<Value>> collected(collected_);
    for (int64_t step = 0; step < length; ++step) {
      std::vector<Value> arguments = std::move(states);
      for (size_t i = 0; i < scanned_; ++i) {
        const Value& sequence = inputs[states_ + i];
        const int64_t at = in_reverse_[i] != 0 ? length - 1 - step : step;
        arguments.push_back({sequence.tensor.select(in_axes_[i], at), sequence.type});
      }
      std::vector<Value> outputs = body_.run(call, std::move(arguments));
      for (size_t i = 0; i < collected_; ++i) collected[i].push_back(std::move(outputs[states_ + i]));
      outputs.resize(states_);
      states = std::move(outputs);
    }
    for (size_t i = 0; i < collected_; ++i) {
      const ValueInfo& element = body_.program->graph().outputs[states_ + i];
      if (out_reverse_[i] != 0) std::reverse(collected[i].begin(), collected[i].end());
      states.push_back(collected[i].empty() ? empty_stack(element, out_axes_[i]) : stack(collected[i], out_axes_[i]));
    }
    return states;
  }

  void run(Call& call) const {
    std::vector<Value> inputs;
    for (size_t i = 0; i < states_ + scanned_; ++i) inputs.push_back(call.value(first_ + i));
    std::vector<Value> outputs = run(call, std::move(inputs));
    for (size_t i = 0; i < outputs.size(); ++i) call.out(i, std::move(outputs[i]));
  }

  /// Opset 8: every value has a batch axis in front, sequences come next and may have lengths of their own.
  void run_batched(Call& call) const {
    const int64_t batch = call.in(first_).size(0);
    const int64_t longest = call.in(first_ + states_).size(1);
    std::vector<int64_t> lengths(static_cast<size_t>(batch), longest);
    if (call.has(0)) lengths = call.ints(0);
    require_count(lengths.size(), static_cast<size_t>(batch), "sequence_lens");
    std::vector<std::vector<at::Tensor>> rows(states_ + collected_);
    std::vector<DType> types(rows.size());
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t length = lengths[static_cast<size_t>(b)];
      std::vector<Value> inputs;
      for (size_t i = 0; i < states_ + scanned_; ++i) {
        const Value& value = call.value(first_ + i);
        const at::Tensor row = value.tensor.select(0, b);
        inputs.push_back({i < states_ ? row : row.narrow(0, 0, length), value.type});
      }
      const std::vector<Value> outputs = run(call, std::move(inputs));
      for (size_t i = 0; i < rows.size(); ++i) {
        const bool padded = i >= states_ && length < longest;
        at::Tensor row = outputs[i].tensor;
        if (padded) {
          std::vector<int64_t> rest = row.sizes().vec();
          rest[0] = longest - length;
          row = at::cat({row, at::zeros(rest, row.options())});
        }
        rows[i].push_back(row);
        types[i] = outputs[i].type;
      }
    }
    if (batch == 0) fail(ErrorCode::InvalidInput, "input 1", "the batch is empty");
    for (size_t i = 0; i < rows.size(); ++i) call.out(i, Value{at::stack(rows[i]), types[i]});
  }

 private:
  int64_t sequence_length(const std::vector<Value>& inputs) const {
    int64_t length = -1;
    for (size_t i = 0; i < scanned_; ++i) {
      const at::Tensor& sequence = inputs[states_ + i].tensor;
      const int64_t here = sequence.size(wrap_axis(in_axes_[i], sequence.dim()));
      if (length >= 0 && here != length) {
        fail(ErrorCode::InvalidInput, "scan inputs", "they have lengths {} and {}; all must be alike", length, here);
      }
      length = here;
    }
    return length;
  }

  Subgraph body_;
  size_t first_;
  size_t states_ = 0;
  size_t scanned_ = 0;
  size_t collected_ = 0;
  std::vector<int64_t> in_reverse_, in_axes_, out_reverse_, out_axes_;
};

Kernel make_scan(const OpInfo& info) {
  if (info.opset() < 9) return [loop = ScanLoop(info, 1)](Call& call) { loop.run_batched(call); };
  return [loop = ScanLoop(info, 0)](Call& call) { loop.run(call); };
}

}  // namespace

void register_control(OpRegistry& ops) {
  ops.add("If", make_if, data_shape());
  ops.add("Loop", make_loop, data_shape());
  ops.add("Scan", make_scan, data_shape());
}

}  // namespace kaon
