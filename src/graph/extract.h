#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// The part of `model` that makes the values `outputs` from the values `inputs`, as a model of its own: a layer with
/// its activation, a residual block, a decoder block. It shares the constants it needs; `inputs` may also name
/// constants, which the caller then gives. Throws InvalidInput where a value does not exist, where an output also
/// depends on an input of the whole model that `inputs` do not cut off, and where an input leads to none of the
/// outputs.
Model extract(const Model& model, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs);

}  // namespace kaon
