#include "engine/cast.h"

#include "engine/op.h"

namespace kaon {

namespace {

CastOptions cast_options(const OpInfo& info) {
  const std::string mode = info.node().get_string("round_mode", "up");
  CastOptions options{.saturate = info.node().get_int("saturate", 1) != 0};
  if (mode == "down") {
    options.e8m0 = E8M0Rounding::Down;
  } else if (mode == "nearest") {
    options.e8m0 = E8M0Rounding::Nearest;
  } else if (mode != "up") {
    info.unsupported(fmt::format("round_mode '{}'; up, down and nearest are known", mode));
  }
  return options;
}

DType target_type(const OpInfo& info) {
  // Opset 1 named the type in words.
  const std::string word = info.node().get_string("to", "");
  if (word.empty()) return static_cast<DType>(info.node().get_int("to", 0));
  static const std::map<std::string, DType> kWords = {
      {"FLOAT", DType::Float32}, {"DOUBLE", DType::Float64}, {"FLOAT16", DType::Float16}, {"BOOL", DType::Bool},
      {"INT8", DType::Int8},     {"INT16", DType::Int16},    {"INT32", DType::Int32},     {"INT64", DType::Int64},
      {"UINT8", DType::UInt8},   {"UINT16", DType::UInt16},  {"UINT32", DType::UInt32},   {"UINT64", DType::UInt64},
      {"STRING", DType::String},
  };
  const auto found = kWords.find(word);
  return found == kWords.end() ? DType::Undefined : found->second;
}

Kernel make_cast(const OpInfo& info) {
  const DType type = target_type(info);
  if (type == DType::Undefined || type == DType::String || !is_known(type)) {
    info.unsupported(fmt::format("a cast to {}", name_of(type)));
  }
  return [type, options = cast_options(info)](Call& call) {
    if (call.shapes_only()) return call.out_zeros(0, call.in(0).sizes(), type);
    call.out(0, cast(call.value(0), type, options));
  };
}

Kernel make_cast_like(const OpInfo& info) {
  return [options = cast_options(info)](Call& call) { call.out(0, cast(call.value(0), call.type(1), options)); };
}

}  // namespace

void register_cast(OpRegistry& ops) {
  ops.add("Cast", make_cast, per_sample());
  ops.add("CastLike", make_cast_like, per_sample());
}

}  // namespace kaon
