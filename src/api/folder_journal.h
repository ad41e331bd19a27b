#pragma once
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace kaon {

/// Which parts of a folder that is being written are finished, in a file beside them, so that another run can go on.
class FolderJournal {
 public:
  /// `task` says what is made of what: a draft of another task is refused at `where`, with what to do.
  FolderJournal(const std::filesystem::path& draft, const std::string& task, const std::string& where);

  bool has(const std::string& part) const { return done_.contains(part); }
  bool empty() const { return done_.empty(); }
  void add(const std::string& part);
  /// All is done; the file goes away.
  void remove();

 private:
  void expect_written() const;

  std::filesystem::path path_;
  std::set<std::string> done_;
  std::ofstream file_;
};

}  // namespace kaon
