// upgrade_onnx IN.onnx OUT.onnx OPSET      upgrades the operators; prints how many nodes changed
// upgrade_onnx --changes                   lists the operators and versions that there are rules for
// tests/oracles compares the two files in ONNX Runtime.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "base/error.h"
#include "graph/upgrade/rules.h"
#include "graph/upgrade_opset.h"
#include "graph/verify.h"
#include "io/onnx/onnx.h"

namespace {

void list_changes() {
  using namespace kaon::upgrade;
  for (const auto& group :
       {attribute_changes(), broadcasting_changes(), image_changes(), normalization_changes(), scan_changes()}) {
    for (const Change& change : group) fmt::print("{} {}\n", change.op, change.version);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--changes") {
    list_changes();
    return 0;
  }
  if (argc != 4) {
    fmt::print(stderr, "usage: upgrade_onnx IN OUT OPSET | --changes\n");
    return 2;
  }
  try {
    kaon::Model model = kaon::read_onnx(std::string(argv[1]));
    const int64_t changes = kaon::upgrade_opset(model, std::stoll(argv[3]));
    kaon::verify(model);
    kaon::write_onnx(model, std::string(argv[2]));
    fmt::print("{}\n", changes);
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
