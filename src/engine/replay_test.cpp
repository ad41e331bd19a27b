#include "engine/replay.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "base/parallel.h"
#include "graph/build_test.h"
#include "numerics/random.h"

namespace kaon {
namespace {

/// Threads of base/parallel.h while it lives.
class Threads {
 public:
  explicit Threads(int count) : before_(thread_count()) { set_thread_count(count); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

Tensor noise(Shape shape, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(element_count(shape)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_unit(seed, i) - 0.5F;
  return Tensor::of(std::move(shape), values);
}

Initializer noise(std::string name, Shape shape) { return {std::move(name), noise(std::move(shape), 7), {}, {}}; }

/// With `long_sum`, threads share a sum at the end, which rounds otherwise than one thread alone.
Model network(bool long_sum) {
  std::vector<Node> nodes{make_node("Conv", {"x", "w1"}, {"a"}, {{"pads", std::vector<int64_t>{1, 1, 1, 1}, {}}}),
                          make_node("Relu", {"a"}, {"b"}),
                          make_node("ConvTranspose", {"b", "w2"}, {"c"}, {{"strides", std::vector<int64_t>{2, 2}, {}}}),
                          make_node("Flatten", {"c"}, {"d"}), make_node("MatMul", {"d", "w3"}, {long_sum ? "e" : "y"})};
  if (long_sum) {
    nodes.push_back(make_node("ReduceL2", {"c"}, {"f"}));
    nodes.push_back(make_node("Add", {"e", "f"}, {"y"}));
  }
  return make_model(std::move(nodes),
                    {noise("w1", {16, 3, 3, 3}), noise("w2", {16, 32, 2, 2}), noise("w3", {32 * 64 * 64, 3})},
                    {make_value("x", {1, 3, 32, 32})}, {"y"});
}

ReplaySource source(int64_t batches) {
  return {batches, [](int64_t batch) {
            return TensorMap{{"x", noise({1, 3, 32, 32}, static_cast<uint64_t>(batch) + 1)}};
          }};
}

std::vector<Variant> variants() {
  std::vector<Variant> all(3);
  all[0].constants["w1"] = noise({16, 3, 3, 3}, 2);
  all[1].constants["w2"] = noise({16, 32, 2, 2}, 3);
  all[2].constants["w3"] = noise({32 * 64 * 64, 3}, 4);
  return all;
}

TEST(Replay, GivesWhatTheEngineGivesHoweverManyThreadsThereAre) {
  constexpr int64_t kBatches = 9;
  for (const auto& [threads, long_sum] :
       {std::pair(1, true), std::pair(2, true), std::pair(2, false), std::pair(3, true), std::pair(3, false)}) {
    const Threads scope(threads);
    Engine engine(network(long_sum));
    Engine alone(network(long_sum));
    const std::vector<Variant> asked = variants();
    std::vector<std::vector<std::vector<float>>> expected(asked.size());
    for (size_t variant = 0; variant < asked.size(); ++variant) {
      for (int64_t batch = 0; batch < kBatches; ++batch) {
        expected[variant].push_back(alone.run(source(kBatches).read(batch), {}, asked[variant])[0].to_float());
      }
    }
    std::vector<int64_t> next(asked.size());
    Replay(engine).run(source(kBatches), {}, asked,
                       [&](size_t variant, int64_t batch, int64_t first, const std::vector<Tensor>& outputs) {
                         EXPECT_EQ(batch, next[variant]++);
                         EXPECT_EQ(first, 0);
                         EXPECT_EQ(outputs[0].to_float(), expected[variant][static_cast<size_t>(batch)])
                             << threads << " " << long_sum << " " << variant;
                       });
    EXPECT_EQ(next, std::vector<int64_t>(asked.size(), kBatches));
  }
}

TEST(Replay, ASinkMayThrow) {
  const Threads scope(2);
  Engine engine(network(true));
  Replay replay(engine);
  int64_t calls = 0;
  const auto run = [&](int64_t last) {
    replay.run(source(8), {}, variants(), [&](size_t, int64_t, int64_t, const std::vector<Tensor>&) {
      if (++calls == last) throw std::runtime_error("enough");
    });
  };
  EXPECT_THROW(run(3), std::runtime_error);
  EXPECT_EQ(calls, 3);
  run(-1);
  EXPECT_EQ(calls, 3 + 3 * 8);
}

TEST(Replay, AnEngineMayGoFromThreadToThread) {
  const TensorMap inputs = source(1).read(0);
  Engine engine(network(true));
  const std::vector<float> expected = engine.run(inputs)[0].to_float();
  std::vector<float> elsewhere;
  std::thread([&] {
    elsewhere = engine.run(inputs)[0].to_float();
    engine = Engine(network(true));
    EXPECT_EQ(engine.run(inputs)[0].to_float(), expected);
  }).join();
  EXPECT_EQ(elsewhere, expected);
  EXPECT_EQ(engine.run(inputs)[0].to_float(), expected);
}

}  // namespace
}  // namespace kaon
