#include "lm/quantized_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "io/quantized/quark.h"
#include "io/quantized/transposed.h"
#include "lm/config.h"

namespace kaon::lm {

namespace ct = compressed_tensors;

namespace {

using Json = nlohmann::json;

/// One of "config_groups".
struct Group {
  std::vector<std::string> targets;
  std::string format;
  std::optional<ct::Args> weights;
  std::optional<ct::Args> inputs;
};

bool matches(const std::string& pattern, const std::string& module, const std::string& where) {
  if (!pattern.starts_with("re:")) return pattern == module;
  try {
    return std::regex_search(module, std::regex(pattern.substr(3)), std::regex_constants::match_continuous);
  } catch (const std::regex_error&) {
    fail(ErrorCode::InvalidConfig, where, "'{}' is no regular expression that can be read", pattern);
  }
}

/// A checkpoint some of whose matrices are stored as several tensors "module.suffix".
class QuantizedFolder : public Weights {
 public:
  QuantizedFolder(std::filesystem::path folder, std::string where)
      : folder_(std::move(folder)), where_(std::move(where)), tensors_(read_checkpoint(folder_)) {}

  std::optional<Shape> shape(const std::string& name) const override {
    if (const std::optional<std::string> module = quantized(name)) {
      return shape_of(*module, finder(*module), where(name) + ": " + *module);
    }
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return std::nullopt;
    return it->second.tensor.shape();
  }

  Tensor tensor(const std::string& name) const override {
    const std::optional<std::string> module = quantized(name);
    return module ? decoded(*module, finder(*module), where(name) + ": " + *module) : tensors_.at(name).tensor;
  }

  std::string where(const std::string& name) const override {
    const size_t dot = name.rfind('.');
    const std::string module = name.substr(0, dot == std::string::npos ? 0 : dot);
    for (const std::string& stored : {name, name + "_packed", module + ".qweight"}) {
      const auto it = tensors_.find(stored);
      if (it != tensors_.end()) return it->second.file.string();
    }
    return folder_.string();
  }

  int64_t parameters() const override {
    int64_t sum = 0;
    std::set<std::string> counted;
    for (const auto& [name, at] : tensors_) {
      const size_t dot = name.rfind('.');
      const std::string module = dot == std::string::npos ? "" : name.substr(0, dot);
      const std::string weight = module + ".weight";
      if (dot == std::string::npos || name.substr(dot) == ".bias" || !quantized(weight)) {
        sum += at.tensor.size();
      } else if (counted.insert(module).second) {
        sum += element_count(*shape(weight));
      }
    }
    return sum;
  }

  int64_t bytes() const override {
    int64_t sum = 0;
    for (const auto& [name, at] : tensors_) sum += at.tensor.byte_size();
    return sum;
  }

 protected:
  virtual bool holds(const std::string& module, const ct::FindPart& find) const = 0;
  virtual Shape shape_of(const std::string& module, const ct::FindPart& find, const std::string& where) const = 0;
  virtual Tensor decoded(const std::string& module, const ct::FindPart& find, const std::string& where) const = 0;

  const std::string& config_place() const { return where_; }

  ct::FindPart finder(const std::string& module) const {
    return [this, module](const std::string& suffix) -> const Tensor* {
      const auto it = tensors_.find(module + "." + suffix);
      return it == tensors_.end() ? nullptr : &it->second.tensor;
    };
  }

  /// How a module's input is quantized, with its numbers where they are stored.
  StoredInput stored_input(const ct::Args& args, const std::string& module, const char* key) const {
    StoredInput input;
    input.spec = ct::input_spec(args, config_place() + ": " + key);
    if (args.dynamic) return input;
    const ct::FindPart find = finder(module);
    const auto number = [&](const char* suffix) {
      const Tensor* tensor = find(suffix);
      if (tensor == nullptr || tensor->size() != 1) {
        fail(ErrorCode::CorruptFile, where(module + ".weight"), "'{}.{}' must be one number", module, suffix);
      }
      return tensor->to_float().front();
    };
    input.scale = number("input_scale");
    if (!args.symmetric && !args.is_float) input.zero_point = static_cast<int32_t>(number("input_zero_point"));
    return input;
  }

  /// The module whose quantized weight goes by this name.
  std::optional<std::string> quantized(const std::string& name) const {
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) return std::nullopt;
    std::string module = name.substr(0, name.size() - kWeight.size());
    return holds(module, finder(module)) ? std::optional(module) : std::nullopt;
  }

 private:
  std::filesystem::path folder_;
  std::string where_;
  std::map<std::string, CheckpointTensor> tensors_;
};

class CompressedTensors : public QuantizedFolder {
 public:
  CompressedTensors(const std::filesystem::path& folder, const Json& config, const std::string& where)
      : QuantizedFolder(folder, where) {
    const auto groups = config.find("config_groups");
    if (groups == config.end() || !groups->is_object() || groups->empty()) {
      fail(ErrorCode::InvalidConfig, where, "'config_groups' must be an object with at least one group");
    }
    const std::string format = config.value("format", "");
    for (const auto& [name, json] : groups->items()) {
      const std::string here = fmt::format("{}: {}", where, name);
      if (!json.is_object()) fail(ErrorCode::InvalidConfig, here, "an object is needed");
      Group group;
      if (const auto it = json.find("targets"); it != json.end() && it->is_array()) {
        for (const Json& target : *it) {
          if (target.is_string()) group.targets.push_back(target.get<std::string>());
        }
      }
      const auto own = json.find("format");
      group.format = own != json.end() && own->is_string() ? own->get<std::string>() : format;
      const auto args = [&](const char* key) -> std::optional<ct::Args> {
        const auto it = json.find(key);
        if (it == json.end() || it->is_null()) return std::nullopt;
        return ct::parse_args(*it, here + ": " + key);
      };
      group.weights = args("weights");
      group.inputs = args("input_activations");
      if (args("output_activations")) fail(ErrorCode::Unsupported, here, "quantized outputs cannot be read");
      groups_.push_back(std::move(group));
    }
  }

  std::optional<StoredInput> input(const std::string& module) const override {
    if (!quantized(module + ".weight")) return std::nullopt;
    const Group& group = group_of(module);
    if (!group.inputs) return std::nullopt;
    return stored_input(*group.inputs, module, "input_activations");
  }

 private:
  bool holds(const std::string& module, const ct::FindPart& find) const override {
    return ct::holds_weight(group_of(module).format, find);
  }
  Shape shape_of(const std::string& module, const ct::FindPart& find, const std::string& where) const override {
    return ct::weight_shape(group_of(module).format, find, where);
  }
  Tensor decoded(const std::string& module, const ct::FindPart& find, const std::string& where) const override {
    const Group& group = group_of(module);
    if (!group.weights) fail(ErrorCode::InvalidConfig, config_place(), "no group says how '{}' is read", module);
    return ct::decode(*group.weights, group.format, find, where);
  }

  /// By its name, by a pattern, else by what all Linear modules are.
  const Group& group_of(const std::string& module) const {
    const Group* of_class = &groups_.front();
    for (const Group& group : groups_) {
      for (const std::string& target : group.targets) {
        if (target == "Linear") of_class = &group;
        if (matches(target, module, config_place())) return group;
      }
    }
    return *of_class;
  }

  std::vector<Group> groups_;
};

/// AutoAWQ's and AutoGPTQ's folders.
class Transposed : public QuantizedFolder {
 public:
  Transposed(const std::filesystem::path& folder, const Json& config, const std::string& where,
             transposed::Method method)
      : QuantizedFolder(folder, where) {
    const Config keys(config, where);
    settings_.method = method;
    settings_.bits = static_cast<int>(keys.size({"bits", "w_bit"}, 8, 4));
    settings_.group_size = keys.integer({"group_size", "q_group_size"}, 128);
    const bool awq = method == transposed::Method::Awq;
    const std::string version = keys.text({awq ? "version" : "checkpoint_format"}, awq ? "gemm" : "gptq");
    if (version != (awq ? "gemm" : "gptq")) {
      fail(ErrorCode::Unsupported, where, "'{}' cannot be read; {} can", version, awq ? "gemm" : "gptq (version 1)");
    }
    if (32 % settings_.bits != 0 && settings_.bits != 3) {
      fail(ErrorCode::Unsupported, where, "{} bits; 2, 3, 4 and 8 can be read", settings_.bits);
    }
  }

 private:
  bool holds(const std::string&, const ct::FindPart& find) const override { return find("qweight") != nullptr; }
  Shape shape_of(const std::string&, const ct::FindPart& find, const std::string& where) const override {
    return transposed::weight_shape(settings_, find, where);
  }
  Tensor decoded(const std::string&, const ct::FindPart& find, const std::string& where) const override {
    return transposed::decode(settings_, find, where);
  }

  transposed::Settings settings_;
};

/// AMD Quark's folders.
class Quark : public QuantizedFolder {
 public:
  Quark(const std::filesystem::path& folder, const Json& config, const std::string& where)
      : QuantizedFolder(folder, where) {
    const auto global = config.find("global_quant_config");
    if (global == config.end()) fail(ErrorCode::InvalidConfig, where, "'global_quant_config' is missing");
    rules_.push_back(rule(*global, "*", where + ": global_quant_config"));
    if (const auto own = config.find("layer_quant_config"); own != config.end() && own->is_object()) {
      for (const auto& [name, json] : own->items())
        rules_.push_back(rule(json, name, fmt::format("{}: {}", where, name)));
    }
    const auto exported = config.find("export");
    if (exported == config.end() || !exported->is_object()) return;
    const std::string order = exported->value("pack_method", "reorder");
    if (order != "reorder" && order != "order") {
      fail(ErrorCode::Unsupported, where, "the pack_method '{}'; reorder and order can be read", order);
    }
    reordered_ = order == "reorder";
  }

  std::optional<StoredInput> input(const std::string& module) const override {
    if (!quantized(module + ".weight")) return std::nullopt;
    const Rule& of = rule_of(module);
    if (!of.inputs) return std::nullopt;
    return stored_input(*of.inputs, module, "input_tensors");
  }

 private:
  struct Rule {
    std::string pattern;
    std::optional<ct::Args> weights;
    std::optional<ct::Args> inputs;
  };

  static Rule rule(const Json& json, const std::string& pattern, const std::string& where) {
    if (!json.is_object()) fail(ErrorCode::InvalidConfig, where, "an object is needed");
    const auto args = [&](const char* key) -> std::optional<ct::Args> {
      const auto it = json.find(key);
      if (it == json.end() || it->is_null()) return std::nullopt;
      return quark::parse(*it, where + ": " + key);
    };
    if (args("output_tensors")) fail(ErrorCode::Unsupported, where, "quantized outputs cannot be read");
    return {pattern, args("weight"), args("input_tensors")};
  }

  /// The last that fits.
  const Rule& rule_of(const std::string& module) const {
    for (const Rule& rule : std::views::reverse(rules_)) {
      if (glob_match(rule.pattern, module)) return rule;
    }
    return rules_.front();
  }

  bool holds(const std::string&, const ct::FindPart& find) const override { return find("weight_scale") != nullptr; }
  Shape shape_of(const std::string& module, const ct::FindPart& find, const std::string& where) const override {
    return quark::weight_shape(weights_of(module), find, where);
  }
  Tensor decoded(const std::string& module, const ct::FindPart& find, const std::string& where) const override {
    return quark::decode(weights_of(module), reordered_, find, where);
  }
  const ct::Args& weights_of(const std::string& module) const {
    const Rule& of = rule_of(module);
    if (!of.weights) fail(ErrorCode::InvalidConfig, config_place(), "no rule says how '{}' is read", module);
    return *of.weights;
  }

  std::vector<Rule> rules_;
  bool reordered_ = true;
};

}  // namespace

std::unique_ptr<Weights> quantized_folder_weights(const std::filesystem::path& folder, const Json& config,
                                                  const std::string& where) {
  const std::string method = config.is_object() ? config.value("quant_method", "") : "";
  if (method == "compressed-tensors") return std::make_unique<CompressedTensors>(folder, config, where);
  if (method == "awq") return std::make_unique<Transposed>(folder, config, where, transposed::Method::Awq);
  if (method == "quark") return std::make_unique<Quark>(folder, config, where);
  if (method == "gptq") return std::make_unique<Transposed>(folder, config, where, transposed::Method::Gptq);
  fail(ErrorCode::Unsupported, where, "the method '{}' cannot be read; compressed-tensors, awq, gptq and quark can",
       method);
}

}  // namespace kaon::lm
