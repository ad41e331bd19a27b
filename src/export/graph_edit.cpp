#include "export/graph_edit.h"

#include <algorithm>
#include <string_view>

namespace kaon {

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

void GraphEdit::redirect(const std::vector<Reader>& readers, const std::string& to) {
  for (const Reader& reader : readers) node(reader.node).inputs[static_cast<size_t>(reader.input)] = to;
}

std::vector<Reader> GraphEdit::readers_of(const std::string& value) const {
  std::vector<Reader> readers;
  for (const int64_t index : uses_.consumers(value)) {
    const std::vector<std::string>& inputs = graph_.nodes[static_cast<size_t>(index)].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == value) readers.push_back({index, static_cast<int64_t>(i)});
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
  put(after_, -1);
  for (int64_t i = 0; i < std::ssize(graph_.nodes); ++i) {
    put(before_, i);
    if (!put(replaced_, i)) nodes.push_back(std::move(node(i)));
    put(after_, i);
  }
  graph_.nodes = std::move(nodes);
}

}  // namespace kaon
