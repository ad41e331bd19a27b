#include "quant/what_if.h"

#include <gtest/gtest.h>

#include "quant/networks_test.h"
#include "quant/quantize.h"
#include "quant/schemes.h"
#include "quant/simulate.h"

namespace kaon {
namespace {

/// The outputs of a model for all samples, run in the batches that WhatIf uses.
std::vector<float> run_alone(const Model& model, const Dataset& data, int64_t batch) {
  Engine engine(model);
  std::vector<float> values;
  for (int64_t first = 0; first < data.size(); first += batch) {
    const auto outputs = engine.run(data.read(first, std::min(batch, data.size() - first)).inputs);
    const std::vector<float> part = outputs[0].to_float();
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

std::vector<std::vector<float>> ask(WhatIf& what_if, const Question& base, const std::vector<Question>& questions,
                                    int64_t samples, int64_t each) {
  std::vector<std::vector<float>> answers(questions.size(), std::vector<float>(static_cast<size_t>(samples * each)));
  what_if.ask(base, questions, [&](size_t question, int64_t first, const std::vector<Tensor>& outputs) {
    const std::vector<float> values = outputs[0].to_float();
    std::copy(values.begin(), values.end(), answers[question].begin() + first * each);
  });
  return answers;
}

class WhatIfTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Schemes, WhatIfTest, testing::Values("w8a8", "w8a8c", "w4g32", "fp8", "w8a8d", "mxfp4"));

TEST_P(WhatIfTest, EveryAnswerIsThatOfTheModelAlone) {
  const MemoryDataset data = residual_data(12);
  const QuantizedModel quantized = quantize(residual_network(), scheme_config(GetParam()), &data);
  // A batch of one makes many pieces, which are run side by side.
  for (const auto& [batch, memory] :
       {std::pair(5, int64_t{1} << 30), std::pair(5, int64_t{10'000}), std::pair(1, int64_t{10'000})}) {
    WhatIf what_if(quantized, data, {.batch = batch, .memory = memory});
    for (const bool on : {true, false}) {
      const Question base = on ? what_if.as_it_is() : what_if.all_off();
      std::vector<Question> questions{base};
      for (size_t i = 0; i < quantized.quantizers.size(); ++i) {
        questions.push_back(base);
        questions.back().on[i] = !on;
      }
      const auto answers = ask(what_if, base, questions, 12, 4);
      for (size_t i = 0; i < questions.size(); ++i) {
        QuantizedModel alone = quantized;
        for (Quantizer& quantizer : alone.quantizers) {
          quantizer.enabled = questions[i].on[static_cast<size_t>(quantizer.id)];
        }
        EXPECT_EQ(answers[i], run_alone(simulate(alone), data, batch)) << (on ? "off " : "on ") << i;
      }
      EXPECT_GT(what_if.cost().shared, 0);
      EXPECT_EQ(what_if.cost().spilled_bytes > 0, memory == 10'000);
      EXPECT_LE(what_if.cost().kept_bytes - what_if.cost().spilled_bytes, memory);
    }
  }
}

TEST(WhatIf, OtherParametersAndConstants) {
  const MemoryDataset data = residual_data(6);
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  WhatIf what_if(quantized, data);
  QuantizedModel alone = quantized;
  Question question = what_if.as_it_is();
  for (const auto& [layer, slot] : {std::pair("conv2", Slot::Weight), std::pair("conv1", Slot::Output)}) {
    Quantizer& quantizer = alone.quantizers[static_cast<size_t>(quantized.find(layer, slot)->id)];
    quantizer.params.scale[0] *= 0.5F;
    question.params[quantizer.id] = quantizer.params;
  }
  std::vector<float> bias = quantized.model.graph.find_initializer("conv2.bias")->tensor.to_float();
  for (float& value : bias) value += 0.5F;
  question.constants["conv2.bias"] = alone.rounded["conv2.bias"] = Tensor::of<float>({16}, bias);
  const auto answers = ask(what_if, what_if.as_it_is(), {question}, 6, 4);
  EXPECT_EQ(answers[0], run_alone(simulate(alone), data, 8));
  EXPECT_NE(answers[0], run_alone(simulate(quantized), data, 8));
}

TEST(WhatIf, ADisabledQuantizerStaysOff) {
  const MemoryDataset data = residual_data(6);
  QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  quantized.quantizers[0].enabled = quantized.quantizers[3].enabled = false;
  WhatIf what_if(quantized, data);
  const auto answers = ask(what_if, what_if.as_it_is(), {what_if.as_it_is()}, 6, 4);
  EXPECT_EQ(answers[0], run_alone(simulate(quantized), data, 8));
}

TEST(WhatIf, QuestionsThatDoNotFitAreErrors) {
  const MemoryDataset data = residual_data(2);
  const QuantizedModel quantized = quantize(residual_network(), scheme_config("w8a8"), &data);
  WhatIf what_if(quantized, data);
  error_of(ErrorCode::InvalidInput, [&] { what_if.variant(Question{}); });
  Question question = what_if.as_it_is();
  question.params[0].scale = {1, 2, 3};
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { what_if.variant(question); }).find("has 1 scales"),
            std::string::npos);
  Variant variant;
  variant.off = {"nothing"};
  const Batch batch = data.read(0, 2);
  EXPECT_NE(error_of(ErrorCode::InvalidInput, [&] { what_if.engine().run(batch.inputs, {}, variant); })
                .find("no FakeQuantize of this model makes it"),
            std::string::npos);
  variant.off.clear();
  variant.constants["conv1.bias|q99"] = Tensor::scalar(1.0F);
  error_of(ErrorCode::InvalidInput, [&] { what_if.engine().run(batch.inputs, {}, variant); });
}

}  // namespace
}  // namespace kaon
