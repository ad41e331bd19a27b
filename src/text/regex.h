#pragma once
#include <memory>
#include <string>
#include <string_view>

namespace kaon {

/// A regular expression as tokenizer.json writes them (Oniguruma's, Unicode everywhere), run by PCRE2.
class Regex {
 public:
  /// Throws Unsupported naming `where` for what is not valid or means something else to PCRE2.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  struct Match {
    size_t begin = std::string_view::npos;
    size_t end = 0;
    bool found() const { return begin != std::string_view::npos; }
  };

  /// Finds matches; one for each thread at a time.
  class Matcher {
   public:
    explicit Matcher(const Regex& regex);
    ~Matcher();
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    /// The first match in `text` (valid UTF-8) from `start` on. Throws InvalidInput where matching takes too long.
    Match find(std::string_view text, size_t start);

   private:
    const Regex& regex_;
    void* data_;
  };

 private:
  std::string where_;
  void* code_ = nullptr;
  bool jit_ = false;
};

}  // namespace kaon
