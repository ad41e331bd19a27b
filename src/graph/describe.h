#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// "float32 [batch, 3, 224, 224]", for messages and tables; "?" is a dimension that the model leaves open.
std::string describe(const ValueInfo& info);
/// "'x': float32 [1, 3], 'mask': bool [1]"
std::string describe(const std::vector<ValueInfo>& infos);

}  // namespace kaon
