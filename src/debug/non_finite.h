#pragma once
#include <map>
#include <optional>

#include "debug/debug_report.h"

namespace kaon {

/// Says of every value of a float model which layer or node makes it.
class ValueNames {
 public:
  explicit ValueNames(const QuantizedModel& quantized);

  /// The NaN or Inf of `tensor`, the value `name` of the float model, if it has one.
  std::optional<NonFiniteAt> find(const std::string& name, const Tensor& tensor) const;

 private:
  std::map<std::string, Served> served_;
};

}  // namespace kaon
