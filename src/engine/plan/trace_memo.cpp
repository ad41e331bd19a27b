#include "engine/plan/trace_memo.h"

#include <algorithm>

#include "engine/plan/runtime.h"
#include "engine/plan/trace.h"

namespace kaon {

namespace {

/// Contents of up to so many bytes are compared: shapes, axes and scalars, no weights.
constexpr size_t kComparedBytes = 64;
/// Numbers of one trace are apart from those that all share.
constexpr int32_t kOwn = 1 << 30;

template <typename T>
void append(std::string& text, const T& number) {
  static_assert(std::is_trivially_copyable_v<T>);
  text.append(reinterpret_cast<const char*>(&number), sizeof(T));
}

void append(std::string& text, std::string_view part) {
  append(text, part.size());
  text.append(part);
}

template <typename T>
void append(std::string& text, const std::vector<T>& numbers) {
  append(text, numbers.size());
  for (const T& number : numbers) append(text, number);
}

/// Adds an attribute's value; false where it is of a kind that is not compared.
bool append_value(std::string& text, const AttributeValue& value) {
  append(text, value.index());
  if (const auto* number = std::get_if<float>(&value)) {
    append(text, *number);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    append(text, *integer);
  } else if (const auto* string = std::get_if<std::string>(&value)) {
    append(text, std::string_view(*string));
  } else if (const auto* numbers = std::get_if<std::vector<float>>(&value)) {
    append(text, *numbers);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    append(text, *integers);
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    if (tensor->type() == DType::String || tensor->bytes().size() > kComparedBytes) return false;
    append(text, tensor->type());
    append(text, tensor->shape());
    append(text, std::string_view(reinterpret_cast<const char*>(tensor->bytes().data()), tensor->bytes().size()));
  } else {
    return false;
  }
  return true;
}

}  // namespace

std::string node_kind(const Node& node) {
  std::string kind;
  append(kind, std::string_view(node.domain));
  append(kind, std::string_view(node.op));
  for (const std::vector<std::string>* names : {&node.inputs, &node.outputs}) {
    append(kind, names->size());
    for (const std::string& name : *names) append(kind, name.empty());
  }
  for (const Attribute& attribute : node.attributes) {
    append(kind, std::string_view(attribute.name));
    if (!append_value(kind, attribute.value)) return "";
  }
  return kind;
}

namespace {

/// What a kernel is made of; "" where that cannot be compared.
std::string kind_of(const Node& node, const Step& step) {
  const bool comparable = step.facts != nullptr && !step.facts->random && step.subgraphs.empty();
  return comparable ? node_kind(node) : "";
}

int32_t number_of(const std::string& text, Numbering& shared, Numbering& own, bool for_all) {
  const auto known = shared.find(text);
  if (known != shared.end()) return known->second;
  if (for_all) return shared.emplace(text, static_cast<int32_t>(shared.size())).first->second;
  return own.emplace(text, kOwn + static_cast<int32_t>(own.size())).first->second;
}

}  // namespace

int32_t TraceCourse::add(ValueTag tag) {
  facts.push_back({tag});
  return static_cast<int32_t>(facts.size()) - 1;
}

void TraceCourse::compare() {
  std::unordered_map<int32_t, int32_t> shapes, contents;
  for (size_t i = 0; i < facts.size(); ++i) {
    const auto place = static_cast<int32_t>(i);
    facts[i].same_shape = shapes.try_emplace(facts[i].tag.shape, place).first->second;
    facts[i].same_contents = contents.try_emplace(facts[i].tag.contents, place).first->second;
  }
}

TraceMemo::TraceMemo(const Program& program, TraceShared& shared)
    : program_(program), shared_(shared), tags_(program.value_names().size()) {
  if (!shared_.step_kinds.empty()) return;
  Numbering kinds;
  for (size_t i = 0; i < program.steps().size(); ++i) {
    const std::string kind = kind_of(program.graph().nodes[i], program.steps()[i]);
    shared_.step_kinds.push_back(kind.empty() ? -1
                                              : kinds.emplace(kind, static_cast<int32_t>(kinds.size())).first->second);
  }
}

ValueTag TraceMemo::tag(int32_t id, const ValueFacts& facts, bool constant) {
  const auto at = static_cast<size_t>(id);
  if (constant) {
    shared_.tags.resize(tags_.size());
    if (shared_.tags[at].shape >= 0) return tags_[at] = shared_.tags[at];
  }
  ValueTag tag;
  text_.clear();
  append(text_, facts.is_static ? facts.constant.type : facts.type);
  append(text_, facts.shape);
  tag.shape = number_of(text_, shared_.shapes, shapes_, constant);
  if (facts.is_static) {
    const at::Tensor& tensor = facts.constant.tensor;
    tag.is_compared = tensor.nbytes() <= kComparedBytes;
    if (tag.is_compared) {
      append(text_, std::string_view(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes()));
    } else {
      append(text_, constant ? first_equal(id, facts, tag.shape) : kOwn + unique_++);
    }
    tag.contents = number_of(text_, shared_.contents, contents_, constant);
  }
  if (constant) shared_.tags[at] = tag;
  return tags_[at] = tag;
}

int32_t TraceMemo::first_equal(int32_t id, const ValueFacts& facts, int32_t shape) {
  const auto [first, last] = shared_.large.equal_range(shape);
  const auto equal = std::find_if(first, last, [&](const auto& other) {
    return same_bytes(shared_.constants[static_cast<size_t>(other.second)]->constant, facts.constant);
  });
  return equal == last ? shared_.large.emplace(shape, id)->second : equal->second;
}

void TraceMemo::add(std::vector<Made> made) {
  if (!key_.empty()) made_.emplace(key_, std::move(made));
}

bool TraceMemo::is_shared(int32_t number) { return number < kOwn; }

bool TraceMemo::decides(const Step& step, size_t input, bool is_static) const {
  const int32_t id = step.inputs[input];
  return is_static || tags_[static_cast<size_t>(id)].is_compared ||
         std::ranges::find(step.facts->shape_inputs, input) != step.facts->shape_inputs.end();
}

size_t TraceMemo::Hash::operator()(const std::vector<int32_t>& key) const {
  uint64_t hash = 14695981039346656037ULL;
  for (const int32_t number : key) hash = (hash ^ static_cast<uint32_t>(number)) * 1099511628211ULL;
  return hash;
}

}  // namespace kaon
