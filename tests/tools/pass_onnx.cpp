// pass_onnx IN.onnx OUT.onnx PASS...: runs the named passes, in their standard order; prints how many places changed.
// tests/oracles compares the two files in ONNX Runtime.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "graph/pass.h"
#include "io/onnx/onnx.h"

int main(int argc, char** argv) {
  if (argc < 4) {
    fmt::print(stderr, "usage: pass_onnx IN OUT PASS...\n");
    return 2;
  }
  try {
    kaon::Model model = kaon::read_onnx(std::string(argv[1]));
    kaon::PassContext context;
    context.evaluate = kaon::evaluate_node;
    kaon::PassOptions options;
    for (const kaon::Pass& pass : kaon::standard_passes()) {
      if (std::find(argv + 3, argv + argc, pass.name) == argv + argc) options.disabled.push_back(pass.name);
    }
    int64_t changes = 0;
    for (const kaon::PassReport& report : kaon::run_passes(model, context, options)) changes += report.changes;
    kaon::write_onnx(model, std::string(argv[2]));
    fmt::print("{}\n", changes);
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
