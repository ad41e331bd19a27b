#pragma once
#include <filesystem>
#include <map>
#include <string>

namespace kaon {

/// What was measured so far, so that a run that was killed can be taken up again: one line for each measurement, in a
/// file that only grows. A line that was cut off in the middle is dropped.
class Journal {
 public:
  /// Remembers nothing beyond this run.
  Journal() = default;
  /// `subject` says what is measured on what; a journal of another subject throws InvalidInput. Without `resume`, an
  /// earlier file is replaced when the first measurement is noted.
  Journal(std::filesystem::path path, const std::string& subject, bool resume);

  /// What was noted under `key` (JSON), or nullptr.
  const std::string* find(const std::string& key) const;
  /// On disk when it returns.
  void note(const std::string& key, std::string value);

 private:
  std::filesystem::path path_;
  std::string unwritten_;  ///< what comes before the first line that is noted
  std::map<std::string, std::string> entries_;
};

}  // namespace kaon
