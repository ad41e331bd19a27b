#pragma once
#include "api/train.h"

namespace CLI {
class App;
}

namespace kaon {

/// The flags of every verb that trains: --model, --recipe, --epochs, --limit, --data.
void declare_training_flags(CLI::App& app, TrainingOptions& options);

}  // namespace kaon
