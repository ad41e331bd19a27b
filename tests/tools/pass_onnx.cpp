// pass_onnx IN.onnx OUT.onnx PASS... [-- IN OUT PASS...]...: runs the named passes, in their standard order; prints how
// many places changed, a line for each OUT. tests/oracles compares the two files in ONNX Runtime.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "graph/pass.h"
#include "io/onnx/onnx.h"

namespace {

int64_t run(std::span<const std::string> words) {
  kaon::Model model = kaon::read_onnx(words[0]);
  kaon::PassContext context;
  context.evaluate = kaon::evaluate_node;
  kaon::PassOptions options;
  for (const kaon::Pass& pass : kaon::standard_passes()) {
    if (std::find(words.begin() + 2, words.end(), pass.name) == words.end()) options.disabled.push_back(pass.name);
  }
  int64_t changes = 0;
  for (const kaon::PassReport& report : kaon::run_passes(model, context, options)) changes += report.changes;
  kaon::write_onnx(model, words[1]);
  return changes;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    for (auto at = words.begin();; ++at) {
      const auto end = std::find(at, words.end(), "--");
      if (end - at < 3) {
        fmt::print(stderr, "usage: pass_onnx IN OUT PASS... [-- IN OUT PASS...]...\n");
        return 2;
      }
      fmt::print("{}\n", run({at, end}));
      if (end == words.end()) return 0;
      at = end;
    }
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
}
