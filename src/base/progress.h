#pragma once
#include <cstdint>
#include <string>

namespace kaon {

/// Told of long work as it goes on. Nothing below cli/ prints: the command hands down one that draws a bar with an
/// ETA; this one says nothing.
class Progress {
 public:
  virtual ~Progress() = default;
  /// `total` steps of `task` lie ahead.
  virtual void begin(const std::string& task, int64_t total) {}
  /// `done` of them are behind us; `note` is a word beside the bar, such as an accuracy so far.
  virtual void at(int64_t done, const std::string& note = {}) {}
  virtual void end() {}
};

/// The one that says nothing.
Progress& no_progress();

}  // namespace kaon
