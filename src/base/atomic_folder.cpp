#include "base/atomic_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/temporaries.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

/// The names of what the last commit put here, one a line.
constexpr const char* kList = ".kaon_files";
constexpr const char* kInside = ".kaon";  ///< what the name of a draft inside the folder starts with

/// Whether `name` is that of a draft: `stem`, a dot, random_suffix(), ".part".
bool is_draft(const std::string& name, const std::string& stem) {
  constexpr size_t kRandom = 16;
  const std::string_view end = ".part";
  if (name.size() != stem.size() + 1 + kRandom + end.size()) return false;
  if (!name.starts_with(stem + ".") || !name.ends_with(end)) return false;
  return name.substr(stem.size() + 1, kRandom).find_first_not_of("0123456789abcdef") == std::string::npos;
}

int open_folder(const fs::path& path) { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); }

/// Drafts whose owner was killed.
void remove_leftovers(const fs::path& folder, const std::string& stem) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (!is_draft(entry.path().filename().string(), stem)) continue;
    const int descriptor = open_folder(entry.path());
    if (descriptor < 0) continue;
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), error);
    ::close(descriptor);
  }
}

bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

std::set<std::string> read_list(const fs::path& folder) {
  std::set<std::string> names;
  std::ifstream stream(folder / kList);
  for (std::string name; std::getline(stream, name);) {
    if (is_plain(name)) names.insert(name);
  }
  return names;
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

fs::path without_slash(const fs::path& folder) { return folder.filename().empty() ? folder.parent_path() : folder; }

}  // namespace

AtomicFolder::AtomicFolder(const fs::path& folder, Start start) : folder_(folder), target_(without_slash(folder)) {
  std::error_code error;
  inside_ = fs::is_directory(target_, error);
  if (start == Start::Resume) {
    resumed_ =
        inside_ ? adopt_draft(target_, kInside) : adopt_draft(target_.parent_path(), target_.filename().string());
    if (resumed_) return;
  }
  if (inside_) {
    remove_leftovers(target_, kInside);
    make_draft((target_ / kInside).string());
    return;
  }
  if (!target_.parent_path().empty()) fs::create_directories(target_.parent_path(), error);
  remove_leftovers(target_.parent_path(), target_.filename().string());
  make_draft(target_.string());
}

AtomicFolder::~AtomicFolder() {
  std::error_code ignored;
  if (!draft_.empty() && !resumed_) {
    fs::remove_all(draft_, ignored);
    forget_temporary(draft_);
  }
  if (lock_ >= 0) ::close(lock_);
}

void AtomicFolder::make_draft(const std::string& stem) {
  constexpr mode_t kAsAsked = 0777;  // less what the umask takes
  for (;;) {
    draft_ = stem + "." + random_suffix() + ".part";
    if (::mkdir(draft_.c_str(), kAsAsked) != 0) {
      if (errno == EEXIST) continue;
      draft_.clear();
      fail(ErrorCode::Io, folder_.string(), "cannot be written: {}", std::strerror(errno));
    }
    lock_ = open_folder(draft_);
    if (lock_ >= 0) ::flock(lock_, LOCK_EX | LOCK_NB);
    std::error_code error;
    if (lock_ >= 0 && fs::exists(draft_, error)) {
      remember_temporary(draft_);
      return;
    }
    // Somebody took it for a leftover before it was locked.
    if (lock_ >= 0) ::close(lock_);
  }
}

bool AtomicFolder::adopt_draft(const fs::path& folder, const std::string& stem) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    if (!is_draft(entry.path().filename().string(), stem)) continue;
    lock_ = open_folder(entry.path());
    if (lock_ < 0) continue;
    if (::flock(lock_, LOCK_EX | LOCK_NB) == 0 && fs::exists(entry.path(), error)) {
      draft_ = entry.path();
      return true;
    }
    ::close(std::exchange(lock_, -1));
  }
  return false;
}

void AtomicFolder::keep() { forget_temporary(draft_); }

void AtomicFolder::check(const fs::path& folder) {
  std::error_code error;
  fs::path at = without_slash(fs::absolute(folder, error));
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  if (!fs::is_directory(at, error)) {
    fail(ErrorCode::Io, folder.string(), "cannot be created: {} is a file, not a folder", at.string());
  }
  if (const int why = try_to_make_in(at); why != 0) {
    fail(ErrorCode::Io, folder.string(), "cannot be written in {}: {}", at.string(), std::strerror(why));
  }
}

int try_to_make_in(const fs::path& folder) {
  const fs::path probe = folder / (std::string(kInside) + "." + random_suffix() + ".part");
  if (::mkdir(probe.c_str(), 0700) != 0) return errno;
  ::rmdir(probe.c_str());
  return 0;
}

bool AtomicFolder::is_empty(const fs::path& folder) {
  const std::set<std::string> names = names_in(folder);
  return std::ranges::all_of(names, [](const std::string& name) { return is_draft(name, kInside); });
}

void AtomicFolder::write_list(const fs::path& folder, const std::set<std::string>& names) const {
  AtomicFile list(folder / kList);
  for (const std::string& name : names) list.write(name + "\n");
  list.commit();
}

void AtomicFolder::commit() {
  if (inside_) {
    move_into_target();
    return;
  }
  write_list(draft_, names_in(draft_));
  std::error_code error;
  fs::rename(draft_, target_, error);
  if (error) fail(ErrorCode::Io, folder_.string(), "cannot be written: {}", error.message());
  forget_temporary(draft_);
  draft_.clear();
}

void AtomicFolder::move_into_target() {
  const std::set<std::string> earlier = read_list(target_), made = names_in(draft_);
  std::error_code error;
  for (const std::string& name : made) {
    if (!fs::is_directory(fs::symlink_status(target_ / name, error))) continue;
    fail(ErrorCode::Io, (folder_ / name).string(), "cannot be written: a folder has this name");
  }
  // Whenever this is cut short, the list names all that is ours.
  std::set<std::string> all = earlier;
  all.insert(made.begin(), made.end());
  write_list(target_, all);
  for (const std::string& name : made) {
    fs::rename(draft_ / name, target_ / name, error);
    if (error) fail(ErrorCode::Io, (folder_ / name).string(), "cannot be written: {}", error.message());
  }
  for (const std::string& name : earlier) {
    const bool ours = !made.contains(name) && fs::is_regular_file(fs::symlink_status(target_ / name, error));
    if (ours) fs::remove(target_ / name, error);
  }
  write_list(target_, made);
}

}  // namespace kaon
