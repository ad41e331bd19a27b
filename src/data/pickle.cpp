#include "data/pickle.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "base/error.h"

namespace kaon {

namespace {

struct Value;
using Text = std::shared_ptr<const std::string>;

struct Mark {};
/// None, floats, lists, long integers: nothing that a tensor is made of.
struct Opaque {};
struct Global {
  Text name;  ///< "module.name"
};
struct Storage {
  std::string key;
  DType type;
  int64_t size;
};
struct Tuple {
  std::shared_ptr<const std::vector<Value>> items;
  int depth;
};
/// Of a dict only the tensors under a string are kept, so that no value can contain itself.
using Entries = std::vector<std::pair<Text, std::shared_ptr<const PickledTensor>>>;

/// Large parts are shared: a pickle may refer to one many times.
struct Value {
  std::variant<Opaque, Mark, bool, int64_t, Text, Global, std::shared_ptr<const Storage>, Tuple,
               std::shared_ptr<const PickledTensor>, std::shared_ptr<Entries>>
      is;
};

// What a few bytes of a pickle can repeat, they must not make large.
constexpr int kMostDepth = 16;  ///< of tuples in tuples
constexpr size_t kMostName = 256, kMostRank = 64;

/// The names in torch's storage classes, by element type.
constexpr std::pair<std::string_view, DType> kStorageTypes[] = {
    {"torch.FloatStorage", DType::Float32}, {"torch.DoubleStorage", DType::Float64},
    {"torch.HalfStorage", DType::Float16},  {"torch.BFloat16Storage", DType::BFloat16},
    {"torch.LongStorage", DType::Int64},    {"torch.IntStorage", DType::Int32},
    {"torch.ShortStorage", DType::Int16},   {"torch.CharStorage", DType::Int8},
    {"torch.ByteStorage", DType::UInt8},    {"torch.BoolStorage", DType::Bool},
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& where) : left_(bytes), where_(where) {}

  Value run();
  std::span<const std::byte> left() const { return left_; }
  const std::map<std::string, int64_t>& storages() const { return storages_; }

 private:
  [[noreturn]] void corrupt(std::string_view why) const {
    fail(ErrorCode::CorruptFile, where_, "its pickle is damaged: {}", why);
  }
  [[noreturn]] void refuse(std::string_view what) const {
    fail(ErrorCode::Unsupported, where_, "holds {}; a tensor or a dict of tensors is read, without running any code",
         what);
  }

  std::string_view take(uint64_t count);
  std::string_view take_line();
  uint64_t take_number(size_t bytes);

  Value pop();
  std::vector<Value> pop_to_mark();
  void push(Value value) { stack_.push_back(std::move(value)); }
  template <typename T>
  const T& expect(const Value& value, const char* what) const {
    const T* found = std::get_if<T>(&value.is);
    if (found == nullptr) corrupt(what);
    return *found;
  }

  void step(uint8_t code);
  void push_text(uint64_t size) { push({std::make_shared<const std::string>(take(size))}); }
  void push_global(std::string_view module, std::string_view name);
  void push_tuple(std::vector<Value> items);
  void push_tuple_of(size_t count);
  void push_long(uint64_t size);
  void get(uint64_t index);
  void put(uint64_t index);
  void set_items(const std::vector<Value>& items);
  void persistent();
  void reduce();
  Value rebuild_tensor(const std::vector<Value>& items) const;
  std::vector<int64_t> integers(const Value& value) const;

  std::span<const std::byte> left_;
  const std::string& where_;
  std::vector<Value> stack_;
  std::unordered_map<uint64_t, Value> memo_;
  std::map<std::string, int64_t> storages_;
};

std::string_view Reader::take(uint64_t count) {
  if (count > left_.size()) corrupt("it is truncated");
  const std::string_view taken(reinterpret_cast<const char*>(left_.data()), count);
  left_ = left_.subspan(count);
  return taken;
}

std::string_view Reader::take_line() {
  const auto end = std::ranges::find(left_, std::byte{'\n'});
  if (end == left_.end()) corrupt("it is truncated");
  const std::string_view line = take(static_cast<uint64_t>(end - left_.begin()));
  take(1);
  return line;
}

uint64_t Reader::take_number(size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, take(bytes).data(), bytes);  // little end first, as this machine
  return number;
}

Value Reader::pop() {
  if (stack_.empty()) corrupt("a value is missing");
  Value value = std::move(stack_.back());
  stack_.pop_back();
  return value;
}

std::vector<Value> Reader::pop_to_mark() {
  const auto mark = std::find_if(stack_.rbegin(), stack_.rend(),
                                 [](const Value& value) { return std::holds_alternative<Mark>(value.is); });
  if (mark == stack_.rend()) corrupt("a mark is missing");
  std::vector<Value> items(mark.base(), stack_.end());
  stack_.erase(mark.base() - 1, stack_.end());
  return items;
}

void Reader::push_global(std::string_view module, std::string_view name) {
  if (module.size() + name.size() > kMostName) corrupt("an endless name");
  push({Global{std::make_shared<const std::string>(fmt::format("{}.{}", module, name))}});
}

void Reader::push_tuple(std::vector<Value> items) {
  int depth = 1;
  for (const Value& item : items) {
    if (const auto* inner = std::get_if<Tuple>(&item.is)) depth = std::max(depth, inner->depth + 1);
  }
  if (depth > kMostDepth) refuse("tuples inside tuples");
  push({Tuple{std::make_shared<const std::vector<Value>>(std::move(items)), depth}});
}

void Reader::push_tuple_of(size_t count) {
  std::vector<Value> items(count);
  for (size_t i = count; i-- > 0;) items[i] = pop();
  push_tuple(std::move(items));
}

void Reader::push_long(uint64_t size) {
  const std::string_view bytes = take(size);
  if (size > sizeof(int64_t)) return push({Opaque{}});
  int64_t number = !bytes.empty() && static_cast<int8_t>(bytes.back()) < 0 ? -1 : 0;
  std::memcpy(&number, bytes.data(), bytes.size());
  push({number});
}

void Reader::get(uint64_t index) {
  const auto found = memo_.find(index);
  if (found == memo_.end()) corrupt("it refers to a value that is not there");
  push(found->second);
}

void Reader::put(uint64_t index) {
  if (stack_.empty()) corrupt("a value is missing");
  memo_.insert_or_assign(index, stack_.back());
}

void Reader::set_items(const std::vector<Value>& items) {
  if (stack_.empty() || items.size() % 2 != 0) corrupt("a value is missing");
  const auto& entries = expect<std::shared_ptr<Entries>>(stack_.back(), "items of what is no dict");
  for (size_t i = 0; i < items.size(); i += 2) {
    const Text* key = std::get_if<Text>(&items[i].is);
    const auto* tensor = std::get_if<std::shared_ptr<const PickledTensor>>(&items[i + 1].is);
    if (key != nullptr && tensor != nullptr) entries->emplace_back(*key, *tensor);
  }
}

/// ("storage", class, key, device, size)
void Reader::persistent() {
  const Value value = pop();
  const std::vector<Value>& id = *expect<Tuple>(value, "a storage is no tuple").items;
  if (id.size() < 5 || *expect<Text>(id[0], "a storage has no kind") != "storage") corrupt("no storage");
  const std::string& name = *expect<Global>(id[1], "a storage has no class").name;
  const auto type = std::ranges::find(kStorageTypes, name, &std::pair<std::string_view, DType>::first);
  if (type == std::end(kStorageTypes)) refuse("a tensor in a " + name);
  const std::string& key = *expect<Text>(id[2], "a storage has no key");
  const int64_t size = expect<int64_t>(id[4], "a storage has no size");
  if (key.size() > kMostName) corrupt("an endless name");
  if (size < 0 || size > int64_t{1} << 48) corrupt("a storage has an impossible size");
  storages_.insert_or_assign(key, size * bits_of(type->second) / 8);
  push({std::make_shared<const Storage>(Storage{key, type->second, size})});
}

std::vector<int64_t> Reader::integers(const Value& value) const {
  const std::vector<Value>& items = *expect<Tuple>(value, "a shape is no tuple").items;
  if (items.size() > kMostRank) corrupt("an endless shape");
  std::vector<int64_t> out;
  for (const Value& item : items) {
    out.push_back(expect<int64_t>(item, "a shape holds no integers"));
  }
  return out;
}

/// (storage, offset, shape, strides, …)
Value Reader::rebuild_tensor(const std::vector<Value>& items) const {
  if (items.size() < 4) corrupt("a tensor is incomplete");
  const Storage& storage = *expect<std::shared_ptr<const Storage>>(items[0], "a tensor has no storage");
  PickledTensor tensor{storage.key,        storage.type,
                       storage.size,       expect<int64_t>(items[1], "a tensor has no offset"),
                       integers(items[2]), integers(items[3])};
  if (tensor.shape.size() != tensor.strides.size()) corrupt("a tensor has more strides than dimensions, or fewer");
  return {std::make_shared<const PickledTensor>(std::move(tensor))};
}

void Reader::reduce() {
  const Value arguments = pop(), function = pop();
  const std::vector<Value>& items = *expect<Tuple>(arguments, "arguments are no tuple").items;
  const std::string& name = *expect<Global>(function, "a call of what is no function").name;
  if (name == "collections.OrderedDict") return push({std::make_shared<Entries>()});
  if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor") {
    return push(rebuild_tensor(items));
  }
  // These wrap their first argument: a parameter its tensor, libtorch's tag a dict.
  const bool wraps = name == "torch._utils._rebuild_parameter" || name == "torch.jit._pickle.restore_type_tag";
  if (wraps && !items.empty()) return push(items[0]);
  refuse("a Python object made by " + name);
}

void Reader::step(uint8_t code) {
  switch (code) {
    case 0x80: take(1); break;                                               // PROTO
    case 0x95: take(8); break;                                               // FRAME
    case '(': push({Mark{}}); break;                                         // MARK
    case '0': pop(); break;                                                  // POP
    case 'N': push({Opaque{}}); break;                                       // NONE
    case 0x88: push({true}); break;                                          // NEWTRUE
    case 0x89: push({false}); break;                                         // NEWFALSE
    case 'K': push({static_cast<int64_t>(take_number(1))}); break;           // BININT1
    case 'M': push({static_cast<int64_t>(take_number(2))}); break;           // BININT2
    case 'J': push({int64_t{static_cast<int32_t>(take_number(4))}}); break;  // BININT
    case 0x8A: push_long(take_number(1)); break;                             // LONG1
    case 'G': take(8), push({Opaque{}}); break;                              // BINFLOAT
    case 'X': push_text(take_number(4)); break;                              // BINUNICODE
    case 0x8C: push_text(take_number(1)); break;                             // SHORT_BINUNICODE
    case 0x8D: push_text(take_number(8)); break;                             // BINUNICODE8
    case '}': push({std::make_shared<Entries>()}); break;                    // EMPTY_DICT
    case ']': push({Opaque{}}); break;                                       // EMPTY_LIST
    case ')': push_tuple({}); break;                                         // EMPTY_TUPLE
    case 't': push_tuple(pop_to_mark()); break;                              // TUPLE
    case 0x85: push_tuple_of(1); break;                                      // TUPLE1
    case 0x86: push_tuple_of(2); break;                                      // TUPLE2
    case 0x87: push_tuple_of(3); break;                                      // TUPLE3
    case 'a': pop(); break;                                                  // APPEND
    case 'e': pop_to_mark(); break;                                          // APPENDS
    case 'b': pop(); break;                                                  // BUILD: attributes of an OrderedDict
    case 'u': set_items(pop_to_mark()); break;                               // SETITEMS
    case 'q': put(take_number(1)); break;                                    // BINPUT
    case 'r': put(take_number(4)); break;                                    // LONG_BINPUT
    case 0x94: put(memo_.size()); break;                                     // MEMOIZE
    case 'h': get(take_number(1)); break;                                    // BINGET
    case 'j': get(take_number(4)); break;                                    // LONG_BINGET
    case 'Q': persistent(); break;                                           // BINPERSID
    case 'R': reduce(); break;                                               // REDUCE
    case 0x81: refuse("a Python object");                                    // NEWOBJ
    case 's': {                                                              // SETITEM
      Value value = pop(), key = pop();
      set_items({std::move(key), std::move(value)});
      break;
    }
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      push_global(module, take_line());
      break;
    }
    case 0x93: {  // STACK_GLOBAL
      const Value name = pop(), module = pop();
      push_global(*expect<Text>(module, "a name is no text"), *expect<Text>(name, "a name is no text"));
      break;
    }
    default:
      fail(ErrorCode::Unsupported, where_, "its pickle uses the opcode 0x{:02X}, which tensors do not need", code);
  }
}

Value Reader::run() {
  for (;;) {
    const auto code = static_cast<uint8_t>(take_number(1));
    if (code == '.') return pop();
    step(code);
  }
}

}  // namespace

PickledTensors read_pickle(std::span<const std::byte>& bytes, const std::string& where) {
  Reader reader(bytes, where);
  const Value value = reader.run();
  bytes = reader.left();
  PickledTensors out;
  out.storages.assign(reader.storages().begin(), reader.storages().end());
  if (const auto* tensor = std::get_if<std::shared_ptr<const PickledTensor>>(&value.is)) {
    out.tensors.emplace_back("", **tensor);
  } else if (const auto* entries = std::get_if<std::shared_ptr<Entries>>(&value.is)) {
    std::map<std::string_view, const PickledTensor*> by_name;  // as in Python, the last of equal keys counts
    for (const auto& [name, entry] : **entries) by_name.insert_or_assign(*name, entry.get());
    for (const auto& [name, entry] : by_name) out.tensors.emplace_back(name, *entry);
  } else {
    fail(ErrorCode::Unsupported, where, "holds neither a tensor nor a dict of tensors");
  }
  return out;
}

void skip_pickle(std::span<const std::byte>& bytes, const std::string& where) {
  Reader reader(bytes, where);
  reader.run();
  bytes = reader.left();
}

}  // namespace kaon
