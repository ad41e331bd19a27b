#include "base/atomic_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>

#include "base/error.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

class AtomicFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    place_ = fs::path(testing::TempDir()) / fmt::format("kaon_folder_{}_{}", test->name(), ::getpid());
    fs::create_directories(place_);
    folder_ = place_ / "out";
  }
  void TearDown() override { fs::remove_all(place_); }

  static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string content(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// But for the list of files.
  static std::set<std::string> names(const fs::path& folder) {
    std::set<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      found.insert(entry.path().filename().string());
    }
    found.erase(".kaon_files");
    return found;
  }
  void commit(const std::set<std::string>& files, const std::string& text) const {
    AtomicFolder out(folder_);
    for (const std::string& name : files) put(out.draft() / name, text);
    out.commit();
  }

  fs::path place_;
  fs::path folder_;
};

using Names = std::set<std::string>;

TEST_F(AtomicFolderTest, AppearsWhole) {
  {
    AtomicFolder out(folder_);
    put(out.draft() / "a", "1");
    EXPECT_FALSE(fs::exists(folder_));
    out.commit();
  }
  EXPECT_EQ(names(folder_), Names{"a"});
  EXPECT_EQ(names(place_), Names{"out"});
}

TEST_F(AtomicFolderTest, WithoutCommitNothingChanges) {
  { AtomicFolder out(folder_); }
  EXPECT_EQ(names(place_), Names{});
  commit({"a"}, "1");
  {
    AtomicFolder out(folder_);
    put(out.draft() / "a", "2");
  }
  EXPECT_EQ(names(folder_), Names{"a"});
  EXPECT_EQ(content(folder_ / "a"), "1");
}

TEST_F(AtomicFolderTest, ReplacesItsOwnFilesAndNoOthers) {
  commit({"a", "b_histogram.png"}, "1");
  put(folder_ / "my_histogram.png", "mine");
  commit({"a", "c"}, "2");
  EXPECT_EQ(names(folder_), (Names{"a", "c", "my_histogram.png"}));
  EXPECT_EQ(content(folder_ / "a"), "2");
  EXPECT_EQ(content(folder_ / "my_histogram.png"), "mine");
}

TEST_F(AtomicFolderTest, AListOfAnotherHandLeadsNowhereElse) {
  fs::create_directories(folder_ / "sub");
  put(place_ / "precious", "mine");
  put(folder_ / ".kaon_files", "../precious\n..\nsub\n" + (place_ / "precious").string() + "\n");
  commit({"a"}, "1");
  EXPECT_TRUE(fs::exists(place_ / "precious"));
  EXPECT_TRUE(fs::exists(folder_ / "sub"));
}

TEST_F(AtomicFolderTest, WhatStandsInTheWayIsFoundBeforeAnythingGoes) {
  commit({"a", "b"}, "1");
  fs::create_directories(folder_ / "z");
  EXPECT_THROW(commit({"a", "z"}, "2"), Error);
  EXPECT_EQ(names(folder_), (Names{"a", "b", "z"}));
  EXPECT_EQ(content(folder_ / "a"), "1");
}

TEST_F(AtomicFolderTest, NothingIsMadeBesideAFolderThatExists) {
  fs::create_directories(folder_);
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat(place_.c_str(), &before), 0);
  commit({"a"}, "1");
  ASSERT_EQ(::stat(place_.c_str(), &after), 0);
  EXPECT_EQ(before.st_mtim.tv_sec, after.st_mtim.tv_sec);
  EXPECT_EQ(before.st_mtim.tv_nsec, after.st_mtim.tv_nsec) << "its parent may be another device, or read-only";
}

TEST_F(AtomicFolderTest, WorksOnAMountPoint) {
  fs::create_directories(folder_);
  if (::mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=1m") != 0) {
    std::cout << "not tried: mounting is refused (" << std::strerror(errno) << ")\n";
    return;
  }
  commit({"a", "b"}, "1");
  put(folder_ / "mine", "mine");
  commit({"a"}, "2");
  const Names left = names(folder_);
  const std::string text = content(folder_ / "a");
  ASSERT_EQ(::umount(folder_.c_str()), 0);
  EXPECT_EQ(left, (Names{"a", "mine"}));
  EXPECT_EQ(text, "2");
}

TEST_F(AtomicFolderTest, ALinkToAFolderIsThatFolder) {
  fs::create_directories(place_ / "there");
  fs::create_directory_symlink("there", folder_);
  commit({"a"}, "1");
  EXPECT_TRUE(fs::is_symlink(folder_));
  EXPECT_EQ(names(place_ / "there"), Names{"a"});
}

TEST_F(AtomicFolderTest, LeftoversOfKilledRunsAreRemovedAndNeverUsed) {
  const fs::path beside = place_ / "out.0123456789abcdef.part", inside = folder_ / ".kaon.0123456789abcdef.part";
  fs::create_directories(beside);
  put(beside / "old.png", "old");
  fs::create_directories(place_ / "out.mine.part");
  commit({"a"}, "1");
  EXPECT_EQ(names(folder_), Names{"a"});
  EXPECT_EQ(names(place_), (Names{"out", "out.mine.part"}));
  fs::create_directories(inside);
  put(inside / "old.png", "old");
  commit({"a"}, "2");
  EXPECT_EQ(names(folder_), Names{"a"});
}

TEST_F(AtomicFolderTest, TheDraftOfALivingRunStays) {
  AtomicFolder one(folder_);
  put(one.draft() / "a", "1");
  { AtomicFolder other(folder_); }
  EXPECT_TRUE(fs::exists(one.draft() / "a"));
  fs::create_directories(folder_);
  AtomicFolder inside(folder_);
  EXPECT_TRUE(AtomicFolder::is_empty(folder_));
  { AtomicFolder other(folder_); }
  EXPECT_TRUE(fs::exists(inside.draft()));
}

TEST_F(AtomicFolderTest, CheckSaysBeforeTheWorkWhatCannotBeWritten) {
  AtomicFolder::check(folder_ / "deeper" / "still/");
  EXPECT_FALSE(fs::exists(folder_));
  put(place_ / "file", "");
  EXPECT_THROW(AtomicFolder::check(place_ / "file" / "out"), Error);
  EXPECT_THROW(AtomicFolder::check("/proc/out"), Error);
}

}  // namespace
}  // namespace kaon
