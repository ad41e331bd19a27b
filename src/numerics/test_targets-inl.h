#pragma once
#include <gtest/gtest.h>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace kaon {

/// Calls body() once for each SIMD target that this build has and this CPU runs.
template <typename Body>
void for_each_simd_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace kaon
