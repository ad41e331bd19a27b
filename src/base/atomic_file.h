#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <streambuf>
#include <string>
#include <string_view>

namespace kaon {

/// Writes to a temporary name beside `path`; commit() renames it into place. Destroyed without commit, it leaves
/// nothing behind and an earlier file untouched. Where `path` is a link, what it points to is replaced. A device, a
/// pipe or a socket is never replaced: it is written into as the bytes come.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  /// Everything is in the temporary file, or an error says why not. Nothing can be written afterwards.
  void finish();
  void commit();

  /// Where the bytes lie until commit().
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Whether there is a temporary file at all; false for devices and the like.
  bool is_file() const { return is_file_; }
  /// Bytes written so far.
  int64_t bytes() const { return bytes_; }

 private:
  friend void commit_together(std::span<const std::unique_ptr<AtomicFile>> files);
  void rename();

  std::filesystem::path path_;    ///< as given, for messages
  std::filesystem::path target_;  ///< the links of path_ followed
  std::filesystem::path temporary_;
  std::unique_ptr<std::streambuf> buffer_;
  bool is_file_ = true;
  int64_t bytes_ = 0;
  int failure_ = 0;  ///< errno of the first write that failed
};

/// Finishes every file before the first is renamed, so that a full disk leaves the earlier ones as they were; two
/// programs that do this in one folder wait for one another and never mix theirs.
void commit_together(std::span<const std::unique_ptr<AtomicFile>> files);

/// 16 characters that nobody foresees, for names that must not exist yet.
std::string random_suffix();

}  // namespace kaon
