#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"

namespace kaon {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / ("kaon_mapped_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }

  void expect_io_error(const std::filesystem::path& path) const {
    try {
      MappedFile::open(path);
      FAIL() << path << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::Io);
      EXPECT_EQ(error.where(), path.string());
    }
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, ShowsTheBytesAndOutlivesTheName) {
  const std::string text("kaon\0kaon!", 10);
  const auto path = write("a", text);
  const auto file = MappedFile::open(path);
  std::filesystem::remove(path);
  ASSERT_EQ(file->bytes().size(), text.size());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()), text);
}

TEST_F(MappedFileTest, EmptyFile) { EXPECT_TRUE(MappedFile::open(write("empty", ""))->bytes().empty()); }

TEST_F(MappedFileTest, MissingFile) { expect_io_error(folder_ / "missing"); }

TEST_F(MappedFileTest, Folder) { expect_io_error(folder_); }

TEST_F(MappedFileTest, APipeDoesNotBlock) {
  const auto path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_io_error(path);
}

}  // namespace
}  // namespace kaon
