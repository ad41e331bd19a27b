#include "io/gguf/gguf.h"
#include "text/vocabulary.h"

namespace kaon {

namespace {

/// Values of tokenizer.ggml.KEY; what is missing or of another kind stays as it is.
class Keys {
 public:
  explicit Keys(const GgufFile& file) : file_(file) {}

  template <typename T>
  void get(const char* key, T& out) const {
    if (const T* value = find<T>(key)) out = *value;
  }
  template <typename T>
  void get(const char* key, std::optional<T>& out) const {
    if (const T* value = find<T>(key)) out = *value;
  }
  /// A list of wider numbers.
  template <typename From, typename List>
  void get_narrowed(const char* key, List& out) const {
    const auto* values = find<std::vector<From>>(key);
    if (values == nullptr) return;
    for (const From value : *values) out.push_back(static_cast<typename List::value_type>(value));
  }

 private:
  template <typename T>
  const T* find(const char* key) const {
    return file_.get_if<T>(std::string("tokenizer.ggml.") + key);
  }
  const GgufFile& file_;
};

}  // namespace

Vocabulary read_vocabulary(const GgufFile& file) {
  const Keys keys(file);
  Vocabulary out;
  keys.get("model", out.model);
  keys.get("pre", out.pre);
  keys.get("tokens", out.tokens);
  keys.get("merges", out.merges);
  keys.get_narrowed<double>("scores", out.scores);
  keys.get_narrowed<int64_t>("token_type", out.types);
  keys.get_narrowed<int64_t>("precompiled_charsmap", out.charsmap);
  keys.get("bos_token_id", out.bos);
  keys.get("eos_token_id", out.eos);
  keys.get("unknown_token_id", out.unknown);
  keys.get("padding_token_id", out.padding);
  keys.get("seperator_token_id", out.separator);  // spelled so in the format
  keys.get("cls_token_id", out.cls);
  keys.get("add_bos_token", out.add_bos);
  keys.get("add_eos_token", out.add_eos);
  keys.get("add_sep_token", out.add_sep);
  keys.get("add_space_prefix", out.add_space_prefix);
  keys.get("remove_extra_whitespaces", out.remove_extra_whitespaces);
  return out;
}

}  // namespace kaon
