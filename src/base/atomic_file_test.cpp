#include "base/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>

#include "base/error.h"

namespace kaon {
namespace {

class AtomicFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) / ("kaon_atomic_" + std::string(test->name()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ / "result.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  auto file_count() const {
    return std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(AtomicFileTest, AppearsWholeAtCommit) {
  AtomicFile file(path_);
  file.write("one ");
  file.write("2");
  const std::byte end[]{std::byte{'!'}};
  file.write(end);
  EXPECT_FALSE(std::filesystem::exists(path_));
  file.commit();
  EXPECT_EQ(content(), "one 2!");
  EXPECT_EQ(file_count(), 1) << "no temporary file is left";
}

TEST_F(AtomicFileTest, ReplacesAnEarlierFile) {
  std::ofstream(path_) << "an earlier and longer text";
  AtomicFile file(path_);
  file.write("new");
  file.commit();
  EXPECT_EQ(content(), "new");
}

TEST_F(AtomicFileTest, WithoutCommitNothingChanges) {
  std::ofstream(path_) << "earlier";
  {
    AtomicFile file(path_);
    file.write("half a res");
  }
  EXPECT_EQ(content(), "earlier");
  EXPECT_EQ(file_count(), 1);
}

TEST_F(AtomicFileTest, AnImpossibleFolderIsAnIoErrorThatNamesTheFile) {
  const auto path = folder_ / "missing" / "result.json";
  try {
    AtomicFile file(path);
    FAIL() << "opened a file in a folder that does not exist";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    EXPECT_EQ(error.where(), path.string());
  }
}

TEST_F(AtomicFileTest, AFailedRenameLeavesNothingBehind) {
  std::filesystem::create_directories(path_ / "occupied");
  {
    AtomicFile file(path_);
    file.write("text");
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(file_count(), 1) << "only the folder that stood in the way";
}

TEST_F(AtomicFileTest, AFullDiskIsReported) {
  AtomicFile file("/dev/full");
  file.write("some bytes");
  try {
    file.commit();
    FAIL() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    EXPECT_NE(std::string(error.what()).find(std::strerror(ENOSPC)), std::string::npos) << error.what();
  }
}

TEST_F(AtomicFileTest, AFullDiskThatIsNoticedLaterIsReported) {
  AtomicFile file("/dev/full");
  const std::string large(1 << 20, 'x');
  for (int i = 0; i < 3; ++i) file.write(large);
  EXPECT_THROW(file.commit(), Error);
}

TEST_F(AtomicFileTest, APipeIsWrittenInto) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  std::string seen;
  std::thread reader([&] { seen = content(); });
  AtomicFile file(path_);
  EXPECT_FALSE(file.is_file());
  file.write("through the pipe");
  file.commit();
  reader.join();
  EXPECT_EQ(seen, "through the pipe");
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
}

TEST_F(AtomicFileTest, ADeviceStaysADevice) {
  std::filesystem::create_symlink("/dev/null", path_);
  AtomicFile file(path_);
  file.write("gone");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_EQ(file_count(), 1);
}

TEST_F(AtomicFileTest, WhatIsOpenElsewhereIsWrittenInto) {
  const int descriptor = ::open(path_.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(descriptor, 0);
  AtomicFile file(fmt::format("/proc/self/fd/{}", descriptor));
  EXPECT_FALSE(file.is_file()) << "as /dev/stdout, which no file may replace";
  file.write("here");
  file.commit();
  ::close(descriptor);
  EXPECT_EQ(content(), "here");
}

TEST_F(AtomicFileTest, WhatALinkPointsToIsReplaced) {
  std::ofstream(folder_ / "there.json") << "earlier";
  std::filesystem::create_symlink("there.json", path_);
  AtomicFile file(path_);
  file.write("new");
  file.commit();
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
  EXPECT_EQ(content(), "new");
  EXPECT_EQ(file_count(), 2);
}

TEST_F(AtomicFileTest, TheTemporaryNameIsNotForeseen) {
  AtomicFile one(path_), two(path_);
  EXPECT_NE(one.temporary(), two.temporary());
  EXPECT_EQ(one.temporary().string().find(std::to_string(::getpid())), std::string::npos);
}

std::vector<std::unique_ptr<AtomicFile>> pair_of(const std::filesystem::path& a, const std::filesystem::path& b,
                                                 const std::string& text) {
  std::vector<std::unique_ptr<AtomicFile>> files;
  for (const auto& path : {a, b}) files.push_back(std::make_unique<AtomicFile>(path));
  for (const auto& file : files) file->write(text);
  return files;
}

TEST_F(AtomicFileTest, OfSeveralEitherAllAreNewOrNone) {
  std::ofstream(path_) << "earlier";
  std::vector<std::unique_ptr<AtomicFile>> files = pair_of(path_, "/dev/full", "new");
  EXPECT_THROW(commit_together(files), Error);
  files.clear();
  std::filesystem::create_directories(folder_ / "stands.json");
  EXPECT_THROW(commit_together(pair_of(path_, folder_ / "stands.json", "new")), Error);
  EXPECT_EQ(content(), "earlier");
  EXPECT_EQ(file_count(), 2);
}

TEST_F(AtomicFileTest, TwoWritersDoNotMixTheirFiles) {
  const std::filesystem::path other = folder_ / "result.bin";
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> writers;
    for (const char* text : {"first", "second"}) {
      writers.emplace_back([&, text] { commit_together(pair_of(path_, other, text)); });
    }
    for (std::thread& writer : writers) writer.join();
    std::ifstream stream(other, std::ios::binary);
    EXPECT_EQ(content(), std::string(std::istreambuf_iterator<char>(stream), {}));
  }
}

}  // namespace
}  // namespace kaon
