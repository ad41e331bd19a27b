#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kaon {

/// An object within a JSON file, asked for its values by key, checked. Throws InvalidConfig naming the place.
class JsonPart {
 public:
  /// `value` must outlive this. Throws unless it is an object.
  JsonPart(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  const nlohmann::json& value() const { return value_; }
  /// There and not null.
  bool has(const char* key) const;
  /// Throws Unsupported for a key that is not in `known`.
  void check_keys(const std::vector<std::string>& known) const;

  std::string type() const { return text("type"); }
  /// Without `otherwise` the key is needed.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key, int64_t least, int64_t most) const;
  JsonPart part(const char* key) const;
  /// The objects of a list.
  std::vector<JsonPart> parts(const char* key) const;
  const nlohmann::json& list(const char* key) const;

  [[noreturn]] void wrong(const std::string& key, const std::string& accepted) const;
  /// The value of `type` is none that is known.
  [[noreturn]] void unknown_type(const std::string& kind) const;

 private:
  const nlohmann::json& value_;
  std::string where_;
};

/// Throws Io or CorruptFile naming the file.
nlohmann::json read_json(const std::string& path);

}  // namespace kaon
