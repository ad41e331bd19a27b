#include "cli/training_flags.h"

#include <CLI/App.hpp>

#include "base/error.h"
#include "cli/context.h"
#include "cli/validators.h"
#include "nn/models.h"

namespace kaon {

void declare_training_flags(CLI::App& app, TrainingOptions& options) {
  app.add_option("--model", options.model, "mlp (default), cnn or mobilenet")->type_name("NAME");
  app.add_option("--recipe", options.recipe, "default, or tutorial: SGD 1e-3, batches of 64")->type_name("NAME");
  app.add_option("--epochs", options.epochs, "times through the training images (default: the recipe's)")
      ->check(at_least_one())
      ->type_name("N");
  app.add_option("--limit", options.limit, "train on the first N images only")->check(at_least_one())->type_name("N");
  app.add_option("--data", options.data,
                 "the folder with Fashion-MNIST's four files (default: KAON_DATA, or Debian's dataset-fashion-mnist)")
      ->type_name("DIR");
}

void check_training_flags(const TrainingOptions& options) {
  try {
    nn::models().get(options.model);
    nn::recipes().get(options.recipe);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace kaon
