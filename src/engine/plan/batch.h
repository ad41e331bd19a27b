#pragma once
#include "engine/plan/plan_op.h"

namespace kaon {

/// Whether every op treats the samples along axis 0 of its inputs apart, so that a batch may be run in slices.
/// `batch` is the number of samples that the graph was traced with.
bool keeps_samples_apart(const Program& program, const PlanGraph& graph, int64_t batch);

}  // namespace kaon
