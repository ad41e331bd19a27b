#pragma once
#include <string>

#include "graph/graph.h"

namespace kaon {

/// "float32 [batch, 3, 224, 224]", for messages and tables; "?" is a dimension that the model leaves open.
std::string describe(const ValueInfo& info);

}  // namespace kaon
