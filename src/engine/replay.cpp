#include "engine/replay.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#include "base/parallel.h"
#include "base/spill.h"
#include "base/stopwatch.h"
#include "engine/plan/plan.h"
#include "engine/threads.h"

namespace kaon {

namespace {

/// One piece of the data on its way through the model.
struct Piece {
  int64_t batch = 0;
  int64_t first = 0;
  SpillBuffer live;  ///< what is alive at the cut; before the first one, the inputs
};

/// The inputs of a piece as they lie behind each other.
class InputLayout {
 public:
  InputLayout() = default;
  explicit InputLayout(const std::vector<Value>& inputs) {
    for (const Value& input : inputs) {
      fields_.push_back({input.type, input.tensor.defined() ? Shape(input.tensor.sizes().vec()) : Shape(),
                         input.tensor.defined(), bytes_});
      if (input.tensor.defined()) bytes_ += (input.tensor.nbytes() + 63) / 64 * 64;
    }
  }

  size_t bytes() const { return bytes_; }
  void save(const std::vector<Value>& inputs, std::byte* to) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!fields_[i].given) continue;
      const at::Tensor flat = inputs[i].tensor.contiguous();
      std::memcpy(to + fields_[i].offset, flat.data_ptr(), flat.nbytes());
    }
  }
  std::vector<Value> load(std::byte* from) const {
    std::vector<Value> inputs;
    for (const Field& field : fields_) {
      inputs.push_back(
          {field.given ? at::from_blob(from + field.offset, field.shape, carrier(field.type)) : at::Tensor(),
           field.type});
    }
    return inputs;
  }

 private:
  struct Field {
    DType type;
    Shape shape;
    bool given;
    size_t offset;
  };
  std::vector<Field> fields_;
  size_t bytes_ = 0;
};

/// Pieces of one shape.
struct Group {
  std::shared_ptr<const Traced> traced;
  InputLayout inputs;
  std::vector<Piece> pieces;
};

/// A variant made ready for a group.
struct Ready {
  size_t number = 0;
  size_t cut = 0;  ///< the op it starts at
  PlanGraph fused;
};

size_t total_bytes(const std::vector<LiveValue>& live) {
  return live.empty() ? 0 : live.back().offset + live.back().bytes;
}

/// Keeps what is alive, within the bound.
class Keeper {
 public:
  Keeper(int64_t memory, Replay::Cost& cost) : memory_(memory), cost_(cost) {}

  SpillBuffer keep(size_t bytes) {
    const std::lock_guard lock(mutex_);
    SpillBuffer buffer(static_cast<int64_t>(bytes), memory_ - in_memory_);
    (buffer.in_file() ? in_file_ : in_memory_) += static_cast<int64_t>(bytes);
    cost_.kept_bytes = std::max(cost_.kept_bytes, in_memory_ + in_file_);
    cost_.spilled_bytes = std::max(cost_.spilled_bytes, in_file_);
    return buffer;
  }
  void drop(SpillBuffer& buffer) {
    const std::lock_guard lock(mutex_);
    (buffer.in_file() ? in_file_ : in_memory_) -= std::ssize(buffer.bytes());
    buffer = SpillBuffer();
  }

 private:
  int64_t memory_;
  int64_t in_memory_ = 0;
  int64_t in_file_ = 0;
  Replay::Cost& cost_;
  std::mutex mutex_;
};

using MakePlan = std::function<std::unique_ptr<Plan>()>;

/// So many pieces that threads take one each, and do not wait for each other at every op.
bool are_many(int64_t pieces) {
  constexpr int64_t kPiecesEach = 2;
  return thread_count() > 1 && pieces >= kPiecesEach * thread_count();
}

/// `work` on every piece, on a thread and a plan of its own where there are many, else each on all threads.
void each_piece(int64_t count, const MakePlan& make, const std::function<void(Plan&, int64_t piece)>& work) {
  std::unique_ptr<Plan> first;
  if (are_many(count)) {
    const ThreadScope alone(1);
    first = make();
    if (first->rounds_by_threads()) first.reset();
  }
  if (first == nullptr) {
    const ThreadScope all(thread_count());
    const std::unique_ptr<Plan> plan = make();
    for (int64_t piece = 0; piece < count; ++piece) work(*plan, piece);
    return;
  }
  std::mutex making;
  std::atomic<int64_t> next = 0;
  parallel_for(0, thread_count(), 1, [&](int64_t, int64_t) {
    int64_t piece = next++;
    if (piece >= count) return;
    use_configured_threads();
    const ThreadScope alone(1);
    const c10::InferenceMode inference;
    try {
      std::unique_lock lock(making);
      const std::unique_ptr<Plan> plan = first != nullptr ? std::move(first) : make();
      lock.unlock();
      for (; piece < count; piece = next++) work(*plan, piece);
    } catch (...) {
      next = count;
      throw;
    }
  });
}

/// Hands on what workers give it, by number: 0, 1, 2 …
class InOrder {
 public:
  explicit InOrder(std::function<void(int64_t, const std::vector<Tensor>&)> sink) : sink_(std::move(sink)) {}

  void put(int64_t number, std::vector<Tensor> outputs) {
    const std::lock_guard lock(mutex_);
    early_.emplace(number, std::move(outputs));
    for (auto first = early_.begin(); first != early_.end() && first->first == next_; first = early_.begin()) {
      const auto node = early_.extract(first);
      ++next_;
      sink_(node.key(), node.mapped());
    }
  }

 private:
  std::function<void(int64_t, const std::vector<Tensor>&)> sink_;
  std::mutex mutex_;
  std::map<int64_t, std::vector<Tensor>> early_;
  int64_t next_ = 0;
};

std::vector<Tensor> results(Plan& plan) {
  std::vector<Tensor> tensors;
  for (const Value& value : plan.outputs()) tensors.push_back(to_tensor(value));
  return tensors;
}

}  // namespace

void Replay::run(const ReplaySource& source, const Variant& base, std::span<const Variant> variants, const Sink& sink) {
  use_configured_threads();
  const c10::InferenceMode inference;
  const Program& program = *engine_.program_;
  Plans& plans = *engine_.plans_;
  cost_ = {};
  const VariantIds base_ids(program, base);
  std::vector<VariantIds> ids;
  for (const Variant& variant : variants) ids.emplace_back(program, variant);

  Keeper keeper(options_.memory, cost_);
  std::map<const Traced*, Group> groups;
  std::vector<const Traced*> order;
  for (int64_t batch = 0; batch < source.batches; ++batch) {
    const TensorMap inputs = source.read(batch);
    const std::vector<Plans::Slice> slices = plans.slices(load_inputs(program, inputs));
    if (slices.empty()) {
      cost_.interpreted = true;
      for (size_t i = 0; i < variants.size(); ++i) sink(i, batch, 0, engine_.run(inputs, {}, variants[i]));
    }
    for (const Plans::Slice& slice : slices) {
      Group& group = groups[slice.traced.get()];
      if (group.traced == nullptr) {
        order.push_back(slice.traced.get());
        group.traced = slice.traced;
        group.inputs = InputLayout(slice.inputs);
      }
      Piece& piece = group.pieces.emplace_back();
      piece.batch = batch;
      piece.first = slice.first;
      piece.live = keeper.keep(group.inputs.bytes());
      group.inputs.save(slice.inputs, piece.live.bytes().data());
    }
  }

  for (const Traced* key : order) {
    Group& group = groups.at(key);
    const auto count = std::ssize(group.pieces);
    const ThreadScope scope(are_many(count) ? 1 : ThreadScope::current());
    const PlanGraph fused_base = plans.fused(*group.traced, base_ids);
    DescribedProducts of_base;
    const std::vector<bool> cuttable = plans.make_part(fused_base, {}, of_base)->cuttable();
    std::vector<Ready> ready;
    for (size_t i = 0; i < variants.size(); ++i) {
      const Stopwatch watch;
      Ready& one = ready.emplace_back();
      one.number = i;
      one.fused = plans.fused(*group.traced, ids[i]);
      one.cut = std::min(shared_ops(fused_base, one.fused), cuttable.empty() ? 0 : cuttable.size() - 1);
      while (one.cut > 0 && !cuttable[one.cut]) --one.cut;
      cost_.shared += one.cut > 0 ? 1 : 0;
      cost_.switch_seconds += watch.seconds();
    }
    std::ranges::stable_sort(ready, {}, &Ready::cut);

    size_t at = 0;
    std::vector<LiveValue> live;
    const auto begin = [&](Plan& part, const Piece& piece, size_t from) {
      std::byte* kept = piece.live.bytes().data();
      if (from == 0) {
        part.start(group.inputs.load(kept));
      } else {
        part.resume(kept);
      }
    };
    for (Ready& variant : ready) {
      if (variant.cut > at) {
        std::vector<LiveValue> next_live;
        const auto make = [&] {
          std::unique_ptr<Plan> part = plans.make_part(fused_base, {at, variant.cut, live}, of_base);
          next_live = part->live_out();
          return part;
        };
        each_piece(count, make, [&](Plan& part, int64_t i) {
          Piece& piece = group.pieces[static_cast<size_t>(i)];
          begin(part, piece, at);
          part.execute();
          SpillBuffer next = keeper.keep(total_bytes(part.live_out()));
          part.save(next.bytes().data());
          keeper.drop(piece.live);
          piece.live = std::move(next);
        });
        live = std::move(next_live);
        at = variant.cut;
      }
      InOrder answers([&](int64_t i, const std::vector<Tensor>& outputs) {
        const Piece& piece = group.pieces[static_cast<size_t>(i)];
        sink(variant.number, piece.batch, piece.first, outputs);
      });
      DescribedProducts described = of_base;
      const auto make = [&] {
        const Stopwatch watch;
        std::unique_ptr<Plan> rest = plans.make_part(variant.fused, {at, SIZE_MAX, live}, described);
        cost_.switch_seconds += watch.seconds();
        return rest;
      };
      each_piece(count, make, [&](Plan& rest, int64_t i) {
        begin(rest, group.pieces[static_cast<size_t>(i)], at);
        rest.execute();
        answers.put(i, results(rest));
      });
      variant.fused = {};
    }
    for (Piece& piece : group.pieces) keeper.drop(piece.live);
    group.pieces.clear();
  }
}

}  // namespace kaon
