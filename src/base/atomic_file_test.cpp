#include "base/atomic_file.h"

#include <gtest/gtest.h>

#include <iterator>

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
  file.stream() << 2;
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

TEST_F(AtomicFileTest, AFailedWriteIsReported) {
  AtomicFile file(path_);
  file.stream().setstate(std::ios::badbit);
  EXPECT_THROW(file.commit(), Error);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

}  // namespace
}  // namespace kaon
