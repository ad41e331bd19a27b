#include "graph/describe.h"

#include <fmt/ranges.h>

namespace kaon {

std::string describe(const ValueInfo& info) {
  const std::string type(info.type == DType::Undefined ? "any type" : name_of(info.type));
  if (!info.shape) return type + " of any shape";
  std::vector<std::string> dims;
  for (const Dim& dim : *info.shape) {
    dims.push_back(dim.value ? std::to_string(*dim.value) : dim.symbol.empty() ? "?" : dim.symbol);
  }
  return fmt::format("{} [{}]", type, fmt::join(dims, ", "));
}

}  // namespace kaon
