#include "doctor/split.h"

#include <cmath>

namespace kaon {

HarmSplit split_harm(Patient& patient, const Scores& exact) {
  HarmSplit split;
  const double before = patient.forwards();
  const Stopwatch watch;
  const QuantizedModel& quantized = patient.quantized();
  const Scorer& scorer = patient.scorer();
  const auto only = [&](auto wanted) {
    Question question = patient.as_it_is();
    for (size_t i = 0; i < question.on.size(); ++i) question.on[i] = question.on[i] && wanted(quantized.quantizers[i]);
    return question;
  };
  const std::vector<Question> questions = {
      patient.as_it_is(),
      only([](const Quantizer& q) { return q.kind == Slot::Weight; }),
      only([](const Quantizer& q) { return q.is_activation(); }),
      only([](const Quantizer& q) { return q.kind == Slot::Bias; }),
  };
  const std::vector<Scores> scores = patient.ask("split", quantized, questions[0], questions, 0, patient.samples());
  split.all = scores[0];
  split.both = scorer.mean_harm(scores[0]);
  split.weights = scorer.mean_harm(scores[1]);
  split.activations = scorer.mean_harm(scores[2]);
  split.biases = scorer.mean_harm(scores[3]);
  const std::string& name = scorer.facts().name;
  const double value = scorer.value(scores[0]), weights = scorer.value(scores[1]),
               activations = scorer.value(scores[2]);
  // In the metric's own distance: what is lost together beyond what is lost apart.
  const MetricFacts& facts = scorer.facts();
  const double exact_badness = facts.badness(scorer.value(exact));
  const double interaction = facts.badness(value) - facts.badness(weights) - facts.badness(activations) + exact_badness;
  split.step = {.number = 2, .name = "weights or activations"};
  split.step.numbers = {{"both", value},
                        {"weights_only", weights},
                        {"activations_only", activations},
                        {"biases_only", scorer.value(scores[3])},
                        {"interaction", interaction},
                        {"harm_both", split.both},
                        {"harm_weights", split.weights},
                        {"harm_activations", split.activations},
                        {"harm_biases", split.biases}};
  const double sum = split.weights + split.activations;
  const double part = sum > 0 ? split.weights / sum : 0;
  const char* word = part > 0.8 ? "it is the weights" : part < 0.2 ? "it is the activations" : "both have a part in it";
  split.step.finding = fmt::format(
      "{} {:.4g} with everything quantized, {:.4g} with weights alone, {:.4g} with "
      "activations alone: {}",
      name, value, weights, activations, sum > 0 ? word : "nothing is lost");
  split.step.seconds = watch.seconds();
  split.step.forwards = patient.forwards() - before;
  return split;
}

}  // namespace kaon
