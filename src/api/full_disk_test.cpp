// Disks of every size that is too small: one clear error, and nothing is left of what was begun.
#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <iostream>

#include "api/quantize_folder.h"
#include "api/quantize_gguf.h"
#include "base/error.h"
#include "io/files_test.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

const fs::path kModel = KAON_SOURCE_DIR "/tests/data/lm/mistral";

/// Returns on how many disks there was no room.
int64_t refusals(const std::function<void(const fs::path&)>& write, const std::string& name) {
  const TemporaryFolder folder;
  const fs::path disk = folder / "disk";
  fs::create_directory(disk);
  int64_t count = 0;
  for (int64_t kib = 4; kib <= 128; kib += 4) {
    if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, fmt::format("size={}k", kib).c_str()) != 0) {
      std::cout << "not tried: mounting is refused (" << std::strerror(errno) << ")\n";
      return -1;
    }
    try {
      write(disk / name);
      EXPECT_TRUE(fs::exists(disk / name)) << kib;
    } catch (const Error& error) {
      ++count;
      EXPECT_EQ(error.code(), ErrorCode::Io);
      EXPECT_NE(std::string(error.what()).find("No space left on device"), std::string::npos) << error.what();
      EXPECT_TRUE(fs::is_empty(disk)) << kib;
    }
    EXPECT_EQ(::umount(disk.c_str()), 0) << std::strerror(errno);
  }
  return count;
}

TEST(FullDisk, NothingIsLeftOfAFolder) {
  const int64_t count =
      refusals([](const fs::path& out) { quantize_folder(kModel, out, scheme_config("w8c"), {}, {}); }, "out");
  if (count < 0) return;
  EXPECT_TRUE(count >= 3 && count < 32) << count;
}

TEST(FullDisk, NothingIsLeftOfAGgufFile) {
  const int64_t count =
      refusals([](const fs::path& out) { quantize_gguf(kModel, out, "f32", {}, {}, {}); }, "out.gguf");
  if (count < 0) return;
  EXPECT_TRUE(count >= 3 && count < 32) << count;
}

}  // namespace
}  // namespace kaon
