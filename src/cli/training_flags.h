#pragma once
#include "api/train.h"

namespace CLI {
class App;
}

namespace kaon {

/// The flags of every verb that trains: --model, --recipe, --epochs, --limit, --data.
void declare_training_flags(CLI::App& app, TrainingOptions& options);
/// Throws UsageError for a network or a recipe that there is not.
void check_training_flags(const TrainingOptions& options);

}  // namespace kaon
