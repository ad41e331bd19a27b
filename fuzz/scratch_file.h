#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

/// A file of this process; it goes away with it.
class ScratchFile {
 public:
  ScratchFile()
      : path_(std::filesystem::temp_directory_path() / ("kaon-fuzz-" + std::to_string(static_cast<long>(::getpid())))) {
  }
  ~ScratchFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};
