#pragma once
#include <span>

#include "engine/plan/runtime.h"

namespace kaon {

/// Row-major elements of 4 bytes out of a strided view of others: any chain of transposes, slices and broadcasts.
class StridedCopyAction : public Action {
 public:
  /// `offset` and `strides`, none of them negative, count elements.
  StridedCopyAction(int32_t in, int32_t out, std::span<const int64_t> dims, std::span<const int64_t> strides,
                    int64_t offset);
  void run(Runtime& runtime) override;

 private:
  int32_t in_, out_;
  int64_t offset_;
  // From outside in, at least two; neighbours are merged where one stride serves both.
  at::DimVector dims_, strides_;
};

}  // namespace kaon
