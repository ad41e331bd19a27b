#pragma once
#include <utility>
#include <vector>

#include "engine/plan/runtime.h"

namespace kaon {

/// Many small products of row-major matrices, a [M, K] times b [K, N], each result scaled and shifted: what a model of
/// any length needs in its attention, without a kernel that is made for that length.
class SmallProductsAction : public Action {
 public:
  struct Sizes {
    int64_t m, n, k;
  };
  /// `offsets`: for each product, where its matrices begin in the slots `a` and `b`, in elements.
  SmallProductsAction(int32_t a, int32_t b, int32_t out, Sizes sizes, std::vector<std::pair<int64_t, int64_t>> offsets)
      : a_(a), b_(b), out_(out), sizes_(sizes), offsets_(std::move(offsets)) {}
  /// y becomes y·scale + shift, after what was asked for before.
  void then(float scale, float shift) { steps_.emplace_back(scale, shift); }
  void run(Runtime& runtime) override;

 private:
  int32_t a_, b_, out_;
  Sizes sizes_;
  std::vector<std::pair<int64_t, int64_t>> offsets_;
  std::vector<std::pair<float, float>> steps_;
};

}  // namespace kaon
