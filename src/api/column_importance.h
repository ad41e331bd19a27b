#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/progress.h"
#include "graph/dataset.h"
#include "lm/language_model.h"

namespace kaon {

/// For each product of a language model's blocks and head, by its name: how large each column of what it reads is over
/// `data`, as the mean of squares. Goes block by block through the float model; `in_memory` bytes of hidden states stay
/// in memory.
std::map<std::string, std::vector<float>> column_importance(const lm::LanguageModel& model, const Dataset& data,
                                                            int64_t batch, int64_t in_memory, Progress& progress);

}  // namespace kaon
