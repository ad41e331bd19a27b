#pragma once
#include <cstdint>
#include <functional>
#include <iostream>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "cli/progress_bar.h"

namespace kaon {

/// The command line cannot be followed: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The flags that every verb takes.
struct CommonFlags {
  bool verbose = false;
  bool quiet = false;
  int threads = 0;     ///< 0 = the cores this process may run on
  int64_t memory = 0;  ///< MiB; 0 = what the machine has free
  uint64_t seed = 0;
  std::string json;  ///< empty = for people; "-" = JSON on stdout; else the file it is written to
};

/// What a verb at work knows of the command line, and where its words go: results to stdout, all else to stderr.
class Context {
 public:
  Context(const CommonFlags& flags, std::ostream& out, std::ostream& err)
      : flags_(flags), out_(out), err_(err), bar_(err, &err == &std::cerr ? stderr_width() : 0) {}

  uint64_t seed() const { return flags_.seed; }

  /// A line on stderr; -q silences it.
  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    if (flags_.quiet) return;
    bar_.hide();
    err_ << printable(fmt::format(format, std::forward<Args>(args)...)) << '\n';
  }
  /// A line on stderr that only -v shows.
  template <typename... Args>
  void detail(fmt::format_string<Args...> format, Args&&... args) {
    if (flags_.verbose) note(format, std::forward<Args>(args)...);
  }

  /// Such lines, "who: what". Where `what` is said of several, or of many with other details behind a colon, it is one
  /// line with their number, and -v lists them.
  void notes(const std::vector<std::string>& lines);

  /// Draws long work on stderr; -q silences it.
  Progress& progress() { return flags_.quiet ? no_progress() : bar_; }

  /// A piece of the result for people while it is made; nothing where stdout is for JSON.
  void stream(const std::string& piece);
  /// The verb's result, once: `document` where --json asked for it, and what `print` writes unless that went to stdout.
  void result(const nlohmann::ordered_json& document, const std::function<void(std::ostream&)>& print);

 private:
  CommonFlags flags_;
  std::ostream& out_;
  std::ostream& err_;
  ProgressBar bar_;
};

}  // namespace kaon
