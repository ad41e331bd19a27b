#pragma once
#include <iosfwd>
#include <vector>

#include "eval/evaluate.h"

namespace kaon {

/// A row for each output of a model, a column for each metric; nothing where there is only one output.
void print_outputs(std::ostream& out, const std::vector<OutputMetrics>& outputs);

}  // namespace kaon
