#pragma once
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

namespace kaon {

/// Writes to a temporary name beside `path`; commit() renames it into place. Destroyed without commit, it leaves
/// nothing behind and an earlier file untouched.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  std::ostream& stream() { return stream_; }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  std::ofstream stream_;
};

}  // namespace kaon
