#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace kaon {

/// How configs and JSON spell the values of E. Specialize it beside the enum:
///   static constexpr std::string_view kKind = "granularity";
///   static constexpr std::pair<std::string_view, E> kAll[] = {{"per_tensor", E::PerTensor}, …};
template <typename E>
struct EnumNames;

template <typename E>
std::string_view enum_name(E value) {
  for (const auto& [name, known] : EnumNames<E>::kAll) {
    if (known == value) return name;
  }
  fail(ErrorCode::Internal, std::string(EnumNames<E>::kKind), "value {} has no name", static_cast<int>(value));
}

/// Throws InvalidConfig at `where`, naming what would be accepted.
template <typename E>
E enum_value(std::string_view name, const std::string& where) {
  std::string known;
  for (const auto& [candidate, value] : EnumNames<E>::kAll) {
    if (candidate == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  fail(ErrorCode::InvalidConfig, where, "unknown {} '{}'; known are {}", EnumNames<E>::kKind, name, known);
}

}  // namespace kaon
