#include "base/temporaries.h"

#include <gtest/gtest.h>

#include <fstream>

namespace kaon {
namespace {

namespace fs = std::filesystem;

TEST(TemporariesDeathTest, WhatIsRememberedGoesWithTheProgram) {
  const fs::path folder = fs::path(testing::TempDir()) / "kaon_temporaries_test";
  fs::create_directories(folder / "draft/deep");
  for (const char* name : {"draft/deep/a", "kept", "part", "done"}) std::ofstream(folder / name) << name;
  EXPECT_EXIT(
      {
        remember_temporary(folder / "draft");
        remember_temporary(folder / "part");
        remember_temporary(folder / "done");
        forget_temporary(folder / "done");
        remove_temporaries();
        std::_Exit(3);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_FALSE(fs::exists(folder / "draft"));
  EXPECT_FALSE(fs::exists(folder / "part"));
  EXPECT_TRUE(fs::exists(folder / "kept"));
  EXPECT_TRUE(fs::exists(folder / "done"));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace kaon
