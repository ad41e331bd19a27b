#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace kaon {

/// A folder that goes away with its test.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_(std::filesystem::temp_directory_path() / ("kaon-test-" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// The .onnx files under `folder`, sorted; says so and returns none where there is no such folder.
inline std::vector<std::filesystem::path> models_under(const std::filesystem::path& folder, const char* called) {
  std::vector<std::filesystem::path> found;
  if (!std::filesystem::is_directory(folder)) {
    std::printf("skipped: %s\n", called);
    return found;
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

inline std::vector<std::filesystem::path> shared_models() {
  return models_under(KAON_SOURCE_DIR "/../shared/models", "../shared is not beside the checkout");
}

inline std::vector<std::filesystem::path> more_models() {
  const char* folder = std::getenv("KAON_MORE_MODELS");
  return models_under(folder != nullptr ? folder : KAON_SOURCE_DIR "/build/models",
                      "build/models is not there (../shared/models/more fetches it)");
}

inline std::vector<std::filesystem::path> onnx_testdata_models() {
  return models_under("/usr/share/libonnx-testdata/data", "libonnx-testdata is not installed");
}

}  // namespace kaon
