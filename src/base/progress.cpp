#include "base/progress.h"

namespace kaon {

Progress& no_progress() {
  static Progress silent;
  return silent;
}

}  // namespace kaon
