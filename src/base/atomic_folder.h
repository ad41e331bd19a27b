#pragma once
#include <filesystem>
#include <set>
#include <string>

namespace kaon {

/// Files that appear in a folder together. They are made in draft(); commit() moves them into the folder, where they
/// replace those of an earlier commit. Files that others put there stay. A folder that does not exist appears whole.
/// In one that does, everything happens inside it, so it may be a mount point or lie in a folder that nobody may write.
class AtomicFolder {
 public:
  explicit AtomicFolder(const std::filesystem::path& folder);
  /// Removes the draft, with whatever was not committed.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Throws Io where `folder` could not be written; leaves nothing behind.
  static void check(const std::filesystem::path& folder);
  /// Whether `folder` holds nothing but what killed runs left.
  static bool is_empty(const std::filesystem::path& folder);

  const std::filesystem::path& draft() const { return draft_; }
  void commit();

 private:
  void make_draft(const std::string& stem);
  void move_into_target();
  void write_list(const std::filesystem::path& folder, const std::set<std::string>& names) const;

  std::filesystem::path folder_;  ///< as given, for messages
  std::filesystem::path target_;
  std::filesystem::path draft_;
  bool inside_ = false;  ///< the draft lies in the target
  int lock_ = -1;        ///< held on the draft: who can take it knows that its owner is gone
};

}  // namespace kaon
