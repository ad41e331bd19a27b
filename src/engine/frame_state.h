#pragma once
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/program.h"

namespace kaon {

struct Frame::State {
  std::shared_ptr<const Program> program;
  std::vector<Value> table;
  std::vector<bool> keep;
  int64_t position = 0;
};

}  // namespace kaon
