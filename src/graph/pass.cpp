#include "graph/pass.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "graph/passes/passes.h"
#include "graph/verify.h"

namespace kaon {

namespace {

void require_known(const std::vector<std::string>& disabled) {
  std::vector<std::string> names;
  for (const Pass& pass : standard_passes()) names.push_back(pass.name);
  for (const std::string& name : disabled) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::string near = nearest(name, names);
    fail(ErrorCode::InvalidInput, name, "unknown pass{}", near.empty() ? "" : "; did you mean '" + near + "'?");
  }
}

}  // namespace

const std::vector<Pass>& standard_passes() {
  static const std::vector<Pass> kPasses{
      {"upgrade_opset", passes::upgrade_opset},
      {"constants_to_initializers", passes::constants_to_initializers},
      {"eliminate_identity", passes::eliminate_identity},
      {"constant_folding", passes::constant_folding},
      {"fold_batch_norm", passes::fold_batch_norm},
      {"hoist_weights", passes::hoist_weights},
      {"remove_dead_nodes", passes::remove_dead_nodes},
  };
  return kPasses;
}

std::vector<PassReport> run_passes(Model& model, const PassContext& context, const PassOptions& options) {
  require_known(options.disabled);
  std::vector<PassReport> reports;
  for (const Pass& pass : standard_passes()) {
    if (std::find(options.disabled.begin(), options.disabled.end(), pass.name) != options.disabled.end()) continue;
    const Stopwatch watch;
    const int64_t changes = pass.run(model, context);
    reports.push_back({pass.name, watch.seconds(), changes});
    if (!options.verify_after || changes == 0) continue;
    try {
      verify(model);
    } catch (const Error& error) {
      fail(ErrorCode::Internal, "pass " + pass.name, "left a broken graph: {}", error.what());
    }
  }
  return reports;
}

}  // namespace kaon
