#include "engine/op.h"

#include <ATen/EmptyTensor.h>

#include <cstring>

#include "engine/memory_guard.h"
#include "engine/program.h"

namespace kaon {

void register_all_ops(OpRegistry& registry);  // generated from ops/*.cpp

namespace {

/// ATen's messages carry a C++ backtrace behind the first line.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void rethrow_as_error(const std::string& where) {
  try {
    throw;
  } catch (const Error& error) {
    if (where.empty() || error.where() == where) throw;
    fail(error.code(), where, "{}", error.what());
  } catch (const c10::Error& error) {
    fail(ErrorCode::InvalidInput, where, "{}", first_line(error.what_without_backtrace()));
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::InvalidInput, where, "there is not enough memory");
  } catch (const std::exception& error) {
    fail(ErrorCode::InvalidInput, where, "{}", first_line(error.what()));
  }
}

void run_kernel(const Kernel& kernel, Call& call, const Node& node) {
  try {
    kernel(call);
  } catch (...) {
    rethrow_as_error(node.label());
  }
}

const Value& Call::value(size_t input) const {
  if (!has(input)) fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "this input is missing");
  return *inputs_[input];
}

std::vector<int64_t> Call::ints(size_t input) const {
  if (!at::isIntegralType(in(input).scalar_type(), /*includeBool=*/true)) {
    fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "must hold integers, not {}", name_of(type(input)));
  }
  const at::Tensor flat = in(input).to(at::kLong).contiguous();
  return {flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel()};
}

std::vector<int64_t> Call::sizes(size_t input) const {
  std::vector<int64_t> values = ints(input);
  for (const int64_t value : values) {
    if (value > kLargestSize || value < -kLargestSize) {
      fail(ErrorCode::InvalidInput, fmt::format("input {}", input), "{} is no size; up to 2^31 is accepted", value);
    }
  }
  return values;
}

void Call::out(size_t output, at::Tensor tensor) {
  const DType type = natural_type(tensor.scalar_type());
  out(output, Value{std::move(tensor), type});
}

void Call::out(size_t output, at::Tensor tensor, DType type) { out(output, make_value(std::move(tensor), type)); }

void Call::out(size_t output, Value value) {
  if (!wants(output)) return;
  // Whoever reads the value goes by its type.
  if (value.tensor.scalar_type() != carrier(value.type)) {
    fail(ErrorCode::InvalidInput, fmt::format("output {}", output), "it would be {}, but holds {}; inputs of one type?",
         name_of(value.type), at::toString(value.tensor.scalar_type()));
  }
  outputs_[output] = std::move(value);
}

void Call::out_zeros(size_t output, at::IntArrayRef shape, DType type) {
  const at::ScalarType held = carrier(type);
  require_room(shape, static_cast<int64_t>(at::elementSize(held)));
  const at::DimVector strides(shape.size(), 0);
  at::Tensor zero = at::detail::empty_strided_cpu(shape, strides, held);
  if (zero.numel() > 0) std::memset(zero.data_ptr(), 0, at::elementSize(held));
  out(output, Value{std::move(zero), type});
}

const Tensor* OpInfo::constant(size_t input) const {
  return has_input(input) ? builder_.constant(node_.inputs[input]) : nullptr;
}

Subgraph OpInfo::subgraph(const std::string& attribute) const { return builder_.subgraph(node_, attribute); }

void OpInfo::unsupported(const std::string& reason) const {
  throw Error(ErrorCode::Unsupported, reason, node_.label());
}

void OpRegistry::add(const std::string& name, KernelMaker maker, OpFacts facts, const std::string& domain) {
  if (!entries_.emplace(std::pair(domain, name), Entry{std::move(maker), std::move(facts)}).second) {
    fail(ErrorCode::Internal, name, "this operator is registered twice");
  }
}

void OpRegistry::add_simple(const std::string& name, Kernel kernel, OpFacts facts, const std::string& domain) {
  const auto maker = [kernel = std::move(kernel)](const OpInfo&) { return kernel; };
  add(name, maker, std::move(facts), domain);
}

const OpRegistry::Entry* OpRegistry::entry(const std::string& domain, const std::string& name) const {
  const auto it = entries_.find({domain == "ai.onnx" ? "" : domain, name});
  return it == entries_.end() ? nullptr : &it->second;
}

const KernelMaker* OpRegistry::find(const std::string& domain, const std::string& name) const {
  const Entry* found = entry(domain, name);
  return found == nullptr ? nullptr : &found->maker;
}

const OpFacts* OpRegistry::facts(const std::string& domain, const std::string& name) const {
  const Entry* found = entry(domain, name);
  return found == nullptr ? nullptr : &found->facts;
}

std::vector<std::pair<std::string, std::string>> OpRegistry::names() const {
  std::vector<std::pair<std::string, std::string>> names;
  names.reserve(entries_.size());
  for (const auto& [key, entry] : entries_) names.push_back(key);
  return names;
}

const OpRegistry& operators() {
  static const OpRegistry kRegistry = [] {
    OpRegistry registry;
    register_all_ops(registry);
    return registry;
  }();
  return kRegistry;
}

}  // namespace kaon
