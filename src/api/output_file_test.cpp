#include "api/output_file.h"

#include <gtest/gtest.h>

#include <fstream>

#include "graph/build_test.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "sub");
    std::ofstream(folder_ / "in.onnx") << "x";
  }
  ~OutputFileTest() override { fs::remove_all(folder_); }

  fs::path folder_ = fs::path(testing::TempDir()) / "kaon_output_file_test";
};

TEST_F(OutputFileTest, FoldersThatDoNotExistYetAreMadeInTheEnd) {
  const fs::path path = folder_ / "a/b/out.onnx";
  check_output(path);
  EXPECT_FALSE(fs::exists(folder_ / "a"));
  make_folder_of(path);
  EXPECT_TRUE(fs::is_directory(folder_ / "a/b"));
  check_output("out.onnx");
  make_folder_of("out.onnx");
}

TEST_F(OutputFileTest, WhatCannotBeWrittenIsSaidBefore) {
  const auto error = [](const fs::path& path) { return error_of(ErrorCode::Io, [&] { check_output(path); }); };
  EXPECT_EQ(error(folder_ / "sub"), (folder_ / "sub").string() + ": is a folder; name the file to write");
  EXPECT_EQ(error("."), ".: is a folder; name the file to write");
  EXPECT_EQ(error("no/"), "no/: is a folder; name the file to write");
  EXPECT_NE(error(folder_ / "in.onnx/out.onnx").find("in.onnx is no folder"), std::string::npos);
  // Nobody can make a file there, though root has every permission.
  EXPECT_NE(error("/proc/out.onnx").find("/proc/out.onnx: cannot be written: /proc: "), std::string::npos);
  EXPECT_NE(error("/proc/new/out.onnx").find("cannot be written: /proc: "), std::string::npos);
}

TEST_F(OutputFileTest, OfALinkTheTargetCounts) {
  fs::create_symlink("in.onnx", folder_ / "here");
  fs::create_symlink("/proc/none.onnx", folder_ / "there");
  check_output(folder_ / "here");
  EXPECT_NE(error_of(ErrorCode::Io, [&] { check_output(folder_ / "there"); }).find("/proc: "), std::string::npos);
}

TEST_F(OutputFileTest, TheInputIsNotOverwrittenUnlessForced) {
  const fs::path input = folder_ / "in.onnx";
  const fs::path same = folder_ / "sub/../in.onnx";
  EXPECT_NE(error_of(ErrorCode::InvalidInput,
                     [&] {
                       check_output(same, {"", input});
                     })
                .find("--force"),
            std::string::npos);
  check_output(same, {input}, true);
  check_output(folder_ / "other.onnx", {input});
}

}  // namespace
}  // namespace kaon
