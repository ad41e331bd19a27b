#include "graph/upgrade_opset.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "graph/upgrade/rules.h"

namespace kaon {

namespace upgrade {

const std::vector<Change>& changes_of(std::string_view op) {
  static const std::unordered_map<std::string_view, std::vector<Change>> kChanges = [] {
    std::unordered_map<std::string_view, std::vector<Change>> by_op;
    for (const auto& group :
         {attribute_changes(), broadcasting_changes(), image_changes(), normalization_changes(), scan_changes()}) {
      for (const Change& change : group) by_op[change.op].push_back(change);
    }
    for (auto& [name, changes] : by_op) {
      std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.version < b.version; });
    }
    return by_op;
  }();
  static const std::vector<Change> kNone;
  const auto it = kChanges.find(op);
  return it == kChanges.end() ? kNone : it->second;
}

namespace {

/// The first IR version that may hold an opset, from ONNX's table of releases.
int64_t least_ir_version(int64_t opset) {
  struct Row {
    int64_t opset;
    int64_t ir_version;
  };
  static constexpr std::array<Row, 11> kRows{
      {{1, 3}, {9, 4}, {10, 5}, {11, 6}, {12, 7}, {15, 8}, {19, 9}, {21, 10}, {23, 11}, {24, 12}, {25, 13}}};
  int64_t version = 3;
  for (const Row& row : kRows) {
    if (opset >= row.opset) version = row.ir_version;
  }
  return version;
}

class Upgrade {
 public:
  Upgrade(const Graph& graph, int64_t from, int64_t target) : shared_{FreshNames(graph), target, {}}, from_(from) {}

  void run(Graph& graph, const Editor* outer) {
    Editor editor(graph, shared_, outer);
    std::vector<Node> nodes;
    nodes.reserve(graph.nodes.size());
    for (Node& node : graph.nodes) place(std::move(node), from_, editor, nodes);
    graph.nodes = std::move(nodes);
  }

  int64_t changed() const { return changed_; }

 private:
  /// Applies the changes after `version` to `node` and adds the result to `nodes`.
  void place(Node node, int64_t version, Editor& editor, std::vector<Node>& nodes) {
    version = std::max(version, shared_.version_of(node));
    if (node.domain.empty()) {
      for (const Change& change : changes_of(node.op)) {
        if (change.version <= version || change.version > shared_.target) continue;
        if (change.rule == nullptr) unsupported(node, fmt::format("its meaning changed in version {}", change.version));
        if (node.inputs.empty() || node.outputs.empty()) unsupported(node, "it has no inputs or no outputs");
        ++changed_;
        for (Node& part : change.rule(std::move(node), editor)) place(std::move(part), change.version, editor, nodes);
        return;
      }
    }
    edit_subgraphs(node, [&](Graph& subgraph) { run(subgraph, &editor); });
    nodes.push_back(std::move(node));
  }

  Shared shared_;
  int64_t from_;
  int64_t changed_ = 0;
};

}  // namespace

}  // namespace upgrade

int64_t upgrade_opset(Model& model, int64_t target) {
  if (target > kNewestKnownOpset) {
    fail(ErrorCode::Unsupported, "opset " + std::to_string(target), "the newest that Kaon can upgrade to is {}",
         kNewestKnownOpset);
  }
  const int64_t from = model.opset();
  if (from >= target) return 0;
  upgrade::Upgrade upgrade(model.graph, from, target);
  Graph graph = model.graph;
  upgrade.run(graph, nullptr);
  // Until IR version 4 every initializer had to stand among the inputs too; since then that makes it a mere default.
  if (model.ir_version < 4) {
    std::unordered_set<std::string_view> initialized;
    for (const Initializer& initializer : graph.initializers) initialized.insert(initializer.name);
    std::erase_if(graph.inputs, [&](const ValueInfo& input) { return initialized.contains(input.name); });
  }
  model.graph = std::move(graph);
  model.opsets[""] = target;
  model.ir_version = std::max(model.ir_version, upgrade::least_ir_version(target));
  return upgrade.changed();
}

}  // namespace kaon
