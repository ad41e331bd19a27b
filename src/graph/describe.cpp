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

std::string describe(const std::vector<ValueInfo>& infos) {
  std::vector<std::string> words;
  for (const ValueInfo& info : infos) words.push_back(fmt::format("'{}': {}", info.name, describe(info)));
  return fmt::format("{}", fmt::join(words, ", "));
}

}  // namespace kaon
