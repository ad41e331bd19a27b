#pragma once
#include <filesystem>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kaon::lm {

/// The keys of one config go by several names, the newest first: {"num_hidden_layers", "n_layer"}.
using Keys = std::initializer_list<std::string_view>;

/// A config.json: values asked for by key, checked. Throws InvalidConfig naming the file and the key. A key whose value
/// is null counts as not there.
class Config {
 public:
  /// Throws Io, InvalidConfig as parse_json does, or CorruptFile where the JSON is no object.
  static Config read(const std::filesystem::path& path);
  static Config parse(std::string_view text, const std::string& where);
  Config(nlohmann::json json, std::string where);

  const std::string& where() const { return where_; }
  bool has(Keys keys) const { return find(keys) != nullptr; }

  /// An integer from 1 to `most`.
  int64_t size(Keys keys, int64_t most) const;
  int64_t size(Keys keys, int64_t most, int64_t otherwise) const;
  int64_t integer(Keys keys, int64_t otherwise) const;
  double number(Keys keys) const;
  double number(Keys keys, double otherwise) const;
  bool flag(Keys keys, bool otherwise) const;
  std::string text(Keys keys, const std::string& otherwise) const;
  /// A list, or one alone.
  std::vector<int64_t> integers(Keys keys) const;
  std::vector<double> numbers(Keys keys) const;
  std::vector<std::string> texts(Keys keys) const;
  /// All of it.
  const nlohmann::json& json() const { return json_; }
  /// An object inside this one; an empty one where it is not there.
  Config inside(Keys keys) const;

  [[noreturn]] void wrong(std::string_view key, const std::string& accepted) const;

 private:
  const nlohmann::json* find(Keys keys) const;

  nlohmann::json json_;
  std::string where_;
};

}  // namespace kaon::lm
