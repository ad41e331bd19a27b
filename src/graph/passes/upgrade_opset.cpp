#include "graph/upgrade_opset.h"

#include "graph/passes/passes.h"

namespace kaon::passes {

int64_t upgrade_opset(Model& model, const PassContext& context) {
  return context.target_opset == 0 ? 0 : kaon::upgrade_opset(model, context.target_opset);
}

}  // namespace kaon::passes
