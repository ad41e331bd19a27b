#include "graph/edit.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"

namespace kaon {

GraphEdit::GraphEdit(Graph& graph, FreshNames* names) : graph_(graph), uses_(graph), names_(names) {
  for (const Node& node : graph.nodes) ids_.push_back(node_id(node));
  if (names_ == nullptr) names_ = &own_names_.emplace(graph);
}

std::string GraphEdit::fresh(const std::string& wanted) {
  made_.push_back(names_->make(wanted));
  return made_.back();
}

std::string GraphEdit::constant(const std::string& wanted, const Tensor& tensor) {
  const std::span<const std::byte> bytes = tensor.bytes();
  const size_t hash = std::hash<std::string_view>{}({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  const auto [first, last] = constants_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Initializer& known = graph_.initializers[it->second];
    if (known.tensor.type() == tensor.type() && known.tensor.shape() == tensor.shape() &&
        std::ranges::equal(known.tensor.bytes(), bytes)) {
      return known.name;
    }
  }
  constants_.emplace(hash, graph_.initializers.size());
  return own_constant(wanted, tensor);
}

std::string GraphEdit::own_constant(const std::string& wanted, const Tensor& tensor) {
  graph_.initializers.push_back({fresh(wanted), tensor, {}, {}});
  return graph_.initializers.back().name;
}

std::string GraphEdit::scalar(float value) {
  return constant(fmt::format("number_{:g}", value), Tensor::scalar<float>(value));
}

Node GraphEdit::make(const std::string& op, std::vector<std::string> inputs, const std::string& about,
                     const std::string& what) {
  Node node;
  node.op = op;
  node.inputs = std::move(inputs);
  node.outputs = {fresh(about + "_" + what)};
  node.name = node.outputs[0];
  return node;
}

Node& GraphEdit::node(const std::string& id) { return graph_.nodes[static_cast<size_t>(index_of(id))]; }

int64_t GraphEdit::index_of(const std::string& id) const {
  const int64_t index = uses_.producer(id);
  if (index < 0) fail(ErrorCode::Internal, "graph '" + graph_.name + "'", "no node makes '{}'", id);
  return index;
}

void GraphEdit::insert_before(const std::vector<Reader>& readers, Node node) {
  int64_t first = std::ssize(graph_.nodes);
  for (const Reader& reader : readers) first = std::min(first, index_of(reader.node));
  before_[first].push_back(std::move(node));
}

void GraphEdit::rename(const std::string& value, const std::string& to) {
  std::ranges::replace(node(value).outputs, value, to);
}

void GraphEdit::redirect(const std::vector<Reader>& readers, const std::string& to) {
  for (const Reader& reader : readers) node(reader.node).inputs.at(static_cast<size_t>(reader.input)) = to;
}

std::vector<Reader> GraphEdit::readers_of(const std::string& value) const {
  std::vector<Reader> readers;
  for (const int64_t index : uses_.consumers(value)) {
    const Node& node = graph_.nodes[static_cast<size_t>(index)];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == value) readers.push_back({ids_[static_cast<size_t>(index)], static_cast<int64_t>(i)});
    }
  }
  return readers;
}

void GraphEdit::finish() {
  std::vector<Node> nodes;
  const auto put = [&](std::map<int64_t, std::vector<Node>>& where, int64_t index) {
    const auto found = where.find(index);
    if (found == where.end()) return false;
    std::ranges::move(found->second, std::back_inserter(nodes));
    return true;
  };
  put(behind_, -1);
  for (int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
    put(before_, i);
    if (!put(replaced_, i)) nodes.push_back(std::move(graph_.nodes[static_cast<size_t>(i)]));
    put(behind_, i);
  }
  graph_.nodes = std::move(nodes);
}

void drop_unread_constants(Graph& graph) {
  {
    const Uses uses(graph);
    std::erase_if(graph.nodes, [&](const Node& node) {
      return node.op == "Cast" && node.inputs.size() == 1 && graph.find_initializer(node.inputs[0]) != nullptr &&
             uses.consumers(node.outputs[0]).empty() && !uses.is_output(node.outputs[0]);
    });
  }
  const Uses uses(graph);
  std::set<std::string> dropped;
  std::erase_if(graph.initializers, [&](const Initializer& initializer) {
    const bool unread = uses.consumers(initializer.name).empty() && !uses.is_output(initializer.name);
    if (unread) dropped.insert(initializer.name);
    return unread;
  });
  // An initializer may stand among the inputs as their default; alone the input would become a required one.
  std::erase_if(graph.inputs, [&](const ValueInfo& input) { return dropped.contains(input.name); });
}

}  // namespace kaon
