#pragma once
#include <optional>

#include "lm/language_model.h"
#include "quant/config.h"

namespace kaon {

/// `config` as it is meant for a language model: the Linear layers of its blocks are quantized, what belongs to the
/// embedding and the head stays float unless a row of `by_name` speaks of it.
Config for_language_model(Config config, const lm::LanguageModel& model);

/// The rows of `config` that concern a part of the model; nothing where it leaves the part as it is.
std::optional<Config> config_of_part(Config config, const Graph& graph);

}  // namespace kaon
