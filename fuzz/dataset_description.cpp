// The bytes up to the first 0 are a description, the rest is the file "data" and the image "data.png" beside it: they
// give samples or a kaon::Error.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "base/error.h"
#include "data/dataset.h"
#include "scratch_file.h"

namespace {

void write(const std::filesystem::path& path, std::span<const uint8_t> bytes) {
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
}

/// A folder under the scratch file's name; it goes away with it.
class ScratchFolder {
 public:
  ScratchFolder() { std::filesystem::create_directories(path()); }
  ~ScratchFolder() { std::filesystem::remove_all(path()); }
  const std::filesystem::path& path() const { return name_.path(); }

 private:
  ScratchFile name_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFolder kFolder;
  const std::span<const uint8_t> bytes(data, size);
  const auto split = static_cast<size_t>(std::find(data, data + size, 0) - data);
  write(kFolder.path() / "d.json", bytes.first(split));
  const std::span<const uint8_t> rest = bytes.subspan(std::min(split + 1, size));
  write(kFolder.path() / "data", rest);
  write(kFolder.path() / "data.png", rest);
  try {
    const auto dataset = kaon::open_dataset(kFolder.path() / "d.json", {{.name = "x"}});
    dataset->read(0, std::min<int64_t>(dataset->size(), 3));
  } catch (const kaon::Error&) {
  }
  return 0;
}
