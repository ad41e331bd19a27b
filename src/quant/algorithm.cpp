#include "quant/algorithm.h"

namespace kaon {

const Registry<Algorithm>& algorithms() {
  static const Registry<Algorithm> all = [] {
    Registry<Algorithm> found("algorithm");
    register_all_algorithms(found);
    return found;
  }();
  return all;
}

}  // namespace kaon
