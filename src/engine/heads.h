#pragma once
#include "base/error.h"
#include "engine/aten.h"
#include "graph/tensor.h"

namespace kaon {

/// [batch, sequence, heads * size] as [batch, heads, sequence, size]; four axes are taken as they are.
inline at::Tensor split_heads(const at::Tensor& x, int64_t heads) {
  if (x.dim() == 4) return x;
  if (x.dim() != 3 || heads < 1 || x.size(2) % heads != 0) {
    fail(ErrorCode::InvalidInput, "input 0", "{} cannot be cut into {} heads", to_string(x.sizes()), heads);
  }
  return x.reshape({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
}

inline at::Tensor join_heads(const at::Tensor& x) {
  return x.transpose(1, 2).reshape({x.size(0), x.size(2), x.size(1) * x.size(3)});
}

}  // namespace kaon
