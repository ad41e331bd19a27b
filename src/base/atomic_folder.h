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
  enum class Start { Afresh, Resume };

  /// Start::Resume: goes on with the draft of a run that was killed or interrupted after keep(), if there is one.
  explicit AtomicFolder(const std::filesystem::path& folder, Start start = Start::Afresh);
  /// Removes the draft, with whatever was not committed, unless an earlier run began it.
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Throws Io where `folder` could not be written; leaves nothing behind.
  static void check(const std::filesystem::path& folder);
  /// Whether `folder` holds nothing but what killed runs left.
  static bool is_empty(const std::filesystem::path& folder);

  const std::filesystem::path& draft() const { return draft_; }
  /// Whether the draft is that of an earlier run.
  bool resumed() const { return resumed_; }
  /// From now on, a program that is interrupted leaves the draft behind, until one that does not resume comes.
  void keep();
  void commit();

 private:
  void make_draft(const std::string& stem);
  bool adopt_draft(const std::filesystem::path& folder, const std::string& stem);
  void move_into_target();
  void write_list(const std::filesystem::path& folder, const std::set<std::string>& names) const;

  std::filesystem::path folder_;  ///< as given, for messages
  std::filesystem::path target_;
  std::filesystem::path draft_;
  bool inside_ = false;  ///< the draft lies in the target
  bool resumed_ = false;
  int lock_ = -1;  ///< held on the draft: who can take it knows that its owner is gone
};

/// 0, or the error number of making something in `folder`: permissions do not tell, since root has them all, and yet a
/// file system may be read-only or full. Leaves nothing behind.
int try_to_make_in(const std::filesystem::path& folder);

}  // namespace kaon
