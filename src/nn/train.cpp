#include "nn/train.h"

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "engine/grad.h"
#include "engine/threads.h"
#include "eval/evaluate.h"
#include "nn/training_form.h"
#include "numerics/random.h"

namespace kaon::nn {

namespace {

constexpr double kWarmUp = 0.25;     ///< the part of a one-cycle schedule that goes up …
constexpr double kFirstRate = 0.04;  ///< … from this share
constexpr int64_t kReadAtOnce = 4096;

void check(const TrainOptions& options) {
  const auto require = [](bool holds, const char* option, const std::string& value, const char* accepted) {
    if (!holds) fail(ErrorCode::InvalidConfig, option, "{}; {} is accepted", value, accepted);
  };
  require(options.epochs >= 1, "epochs", std::to_string(options.epochs), "1 or more");
  require(options.batch >= 1, "batch", std::to_string(options.batch), "1 or more");
  require(options.learning_rate > 0, "learning_rate", std::to_string(options.learning_rate), "a number above 0");
  require(options.momentum >= 0 && options.momentum < 1, "momentum", std::to_string(options.momentum),
          "a number from 0 to below 1");
  require(options.weight_decay >= 0, "weight_decay", std::to_string(options.weight_decay), "0 or more");
}

/// A dataset in memory.
struct Samples {
  at::Tensor inputs;
  at::Tensor labels;
};

Samples read_all(const Dataset& data, const std::string& input) {
  const int64_t size = data.size();
  if (size < 1) fail(ErrorCode::InvalidInput, "training data", "there are no samples");
  if (!data.has_labels()) fail(ErrorCode::InvalidInput, "training data", "training needs labels, and there are none");
  Samples samples;
  samples.labels = at::empty({size}, at::kLong);
  for (int64_t first = 0; first < size; first += kReadAtOnce) {
    const int64_t count = std::min(kReadAtOnce, size - first);
    const Batch batch = data.read(first, count);
    check_finite(batch, first);
    const auto it = batch.inputs.find(input);
    if (it == batch.inputs.end() || it->second.type() != DType::Float32) {
      fail(ErrorCode::InvalidInput, "training data", "float32 samples for the input '{}' are needed", input);
    }
    const Tensor& part = it->second;
    if (batch.labels.shape() != Shape{count}) {
      fail(ErrorCode::InvalidInput, "training data", "one class for each sample is needed, not labels of the shape {}",
           to_string(batch.labels.shape()));
    }
    if (!samples.inputs.defined()) {
      Shape shape = part.shape();
      shape[0] = size;
      samples.inputs = at::empty(shape, at::kFloat);
    }
    std::memcpy(samples.inputs.data_ptr<float>() + first * (samples.inputs.numel() / size), part.bytes().data(),
                part.bytes().size());
    std::ranges::copy(batch.labels.to_int64(), samples.labels.data_ptr<int64_t>() + first);
  }
  return samples;
}

/// The samples' order in one epoch.
at::Tensor order_of(int64_t size, const TrainOptions& options, int64_t epoch) {
  at::Tensor order = at::arange(size, at::kLong);
  if (!options.shuffle) return order;
  auto* indices = order.data_ptr<int64_t>();
  const uint64_t stream = options.seed + (static_cast<uint64_t>(epoch) << 32);
  for (int64_t i = size - 1; i > 0; --i) {
    const double unit = random_unit(stream, static_cast<uint64_t>(i));
    std::swap(indices[i], indices[static_cast<int64_t>(unit * static_cast<double>(i + 1))]);
  }
  return order;
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::map<std::string, at::Tensor>& parameters,
                                                        const TrainOptions& options) {
  std::vector<at::Tensor> weights, others;
  for (const auto& [name, parameter] : parameters) (parameter.dim() > 1 ? weights : others).push_back(parameter);
  const auto make = [&]<typename Chosen, typename Settings>(const Settings& settings) {
    Settings with_decay = settings, without_decay = settings;
    with_decay.weight_decay(options.weight_decay);
    without_decay.weight_decay(0);
    std::vector<torch::optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::make_unique<Settings>(with_decay));
    groups.emplace_back(others, std::make_unique<Settings>(without_decay));
    return std::make_unique<Chosen>(groups, settings);
  };
  if (options.optimizer == Optimizer::AdamW) {
    return make.operator()<torch::optim::AdamW>(torch::optim::AdamWOptions(options.learning_rate));
  }
  return make.operator()<torch::optim::SGD>(
      torch::optim::SGDOptions(options.learning_rate).momentum(options.momentum).nesterov(options.momentum > 0));
}

/// Convolutions keep the layout of their weights, and batch norms and depthwise convolutions are several times faster
/// in this one. The copy matters: what has one channel counts as channels-last already, but is not taken for it.
void use_channels_last(std::map<std::string, at::Tensor>& parameters) {
  const at::NoGradGuard no_gradients;
  for (auto& [name, parameter] : parameters) {
    if (parameter.dim() != 4) continue;
    at::Tensor data = at::empty(parameter.sizes(), parameter.options(), at::MemoryFormat::ChannelsLast);
    data.copy_(parameter);
    parameter.set_data(data);
  }
}

void set_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) group.options().set_lr(rate);
}

/// Sums over the samples of an epoch so far.
struct Sums {
  double loss = 0;
  int64_t correct = 0;
  int64_t samples = 0;

  Epoch means() const {
    const auto count = static_cast<double>(samples);
    return {loss / count, static_cast<double>(correct) / count};
  }
};

class Training {
 public:
  Training(const Model& model, const Dataset& data, const TrainOptions& options)
      : options_(options),
        input_(only_input(model)),
        form_(model),
        net_(form_.model(), form_.frozen()),
        samples_(read_all(data, input_)) {
    use_channels_last(net_.parameters());
    optimizer_ = make_optimizer(net_.parameters(), options);
  }

  std::vector<Epoch> run() {
    std::vector<Epoch> epochs;
    const int64_t size = samples_.labels.size(0);
    options_.progress->begin("train", size * options_.epochs);
    for (int64_t epoch = 0; epoch < options_.epochs; ++epoch) {
      const at::Tensor order = order_of(size, options_, epoch);
      Sums sums;
      for (int64_t first = 0; first < size; first += options_.batch) {
        step(order.slice(0, first, std::min(first + options_.batch, size)), sums);
        const Epoch so_far = sums.means();
        options_.progress->at(epoch * size + sums.samples,
                              fmt::format("epoch {}/{}, loss {:.3f}, accuracy {:.3f}", epoch + 1, options_.epochs,
                                          so_far.loss, so_far.accuracy));
      }
      epochs.push_back(sums.means());
    }
    options_.progress->end();
    return epochs;
  }

  Model trained() const { return form_.restored(net_.trained()); }

 private:
  static std::string only_input(const Model& model) {
    const std::vector<ValueInfo> inputs = model.graph.required_inputs();
    if (inputs.size() == 1) return inputs[0].name;
    fail(ErrorCode::Unsupported, model.graph.name, "it has {} inputs; networks with one can be trained", inputs.size());
  }

  void step(const at::Tensor& which, Sums& sums) {
    const at::Tensor labels = samples_.labels.index_select(0, which);
    const std::vector<at::Tensor> outputs = net_.forward({{input_, samples_.inputs.index_select(0, which)}});
    const at::Tensor& logits = outputs[0];
    check_classes(logits);
    const at::Tensor loss = at::cross_entropy_loss(logits, labels);
    const double value = loss.item<double>();
    if (!std::isfinite(value)) {
      fail(ErrorCode::Numeric, "loss", "it is {} after {} steps; a lower learning rate than {} may help", value, steps_,
           options_.learning_rate);
    }
    set_rate(*optimizer_, options_.learning_rate * rate_at(options_.schedule, steps_, total_steps()));
    optimizer_->zero_grad();
    loss.backward();
    optimizer_->step();
    form_.average(outputs);
    ++steps_;
    const int64_t count = labels.size(0);
    sums.loss += value * static_cast<double>(count);
    sums.correct += logits.detach().argmax(1).eq(labels).sum().item<int64_t>();
    sums.samples += count;
  }

  int64_t total_steps() const {
    return options_.epochs * ((samples_.labels.size(0) + options_.batch - 1) / options_.batch);
  }

  void check_classes(const at::Tensor& logits) {
    if (steps_ > 0) return;
    if (logits.dim() != 2) {
      fail(ErrorCode::InvalidInput, "output", "it has the rank {}; [batch, classes] can be trained", logits.dim());
    }
    const int64_t least = samples_.labels.min().item<int64_t>(), most = samples_.labels.max().item<int64_t>();
    if (least < 0 || most >= logits.size(1)) {
      fail(ErrorCode::InvalidInput, "training data", "classes from {} to {}, but the model tells {} apart", least, most,
           logits.size(1));
    }
  }

  const TrainOptions& options_;
  std::string input_;
  TrainingForm form_;
  GradModel net_;
  Samples samples_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  int64_t steps_ = 0;
};

}  // namespace

double rate_at(Schedule schedule, int64_t step, int64_t steps) {
  const auto half_cosine = [](double from, double to, double part) {
    return to + (from - to) * (1 + std::cos(std::numbers::pi * part)) / 2;
  };
  const double part = static_cast<double>(step) / static_cast<double>(steps);
  switch (schedule) {
    case Schedule::Constant: return 1;
    case Schedule::Cosine: return half_cosine(1, 0, part);
    case Schedule::OneCycle:
      return part < kWarmUp ? half_cosine(kFirstRate, 1, part / kWarmUp)
                            : half_cosine(1, 0, (part - kWarmUp) / (1 - kWarmUp));
  }
  return 1;
}

TrainResult train(const Model& model, const Dataset& training, const Dataset* test, const TrainOptions& options) {
  check(options);
  use_configured_threads();
  const Stopwatch watch;
  TrainResult result;
  {
    Training work(model, training, options);
    result.epochs = work.run();
    result.model = work.trained();
  }
  result.seconds = watch.seconds();
  if (test != nullptr) {
    Engine engine(result.model);
    const EvalResult scored =
        evaluate(engine, *test, {"top1", "loss"}, nullptr, {.batch = 256, .progress = options.progress});
    result.test = Score{scored.metrics[0].second, scored.metrics[1].second};
  }
  return result;
}

}  // namespace kaon::nn
