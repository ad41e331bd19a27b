#pragma once
namespace kaon {

/// Gives ATen, oneDNN and BLAS the thread count of base/parallel.h. Debian's libtorch starts with one.
void use_configured_threads();

}  // namespace kaon
