#include "layers.h"

#include <gtest/gtest.h>

#include <fstream>

namespace kaon {
namespace {

using Problems = std::vector<std::string>;

class LayersTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    source_ = std::filesystem::path(testing::TempDir()) / ("kaon_layers_" + std::string(test->name()));
    std::filesystem::remove_all(source_);
    write("layers.txt", "# a comment\nbase:\nmiddle: base\ntop: middle\n");
    write("base/a.h", "#pragma once\n#include <vector>\n");
    write("middle/b.h", "#include \"base/a.h\"\n#include \"vendor/x.h\"\n");
    write("top/sub/c.cpp", "#include \"top/sub/c.h\"\n#include \"base/a.h\"\n#include \"middle/b.h\"\n");
    write("main.cpp", "#include \"top/c.h\"\n");
  }
  void TearDown() override { std::filesystem::remove_all(source_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((source_ / name).parent_path());
    std::ofstream(source_ / name) << text;
  }

  std::filesystem::path source_;
};

TEST_F(LayersTest, AcceptsATreeThatKeepsToItsTable) { EXPECT_EQ(layer_problems(source_), Problems{}); }

TEST_F(LayersTest, FindsAPlantedInclude) {
  write("base/deep/bad.cpp", "#include <string>\n\n  #  include \"top/sub/c.h\"  // no\n");
  EXPECT_EQ(layer_problems(source_),
            Problems{"base/deep/bad.cpp:3: includes 'top/sub/c.h', but base may not include top"});
}

TEST_F(LayersTest, FindsAnIncludeInBrackets) {
  write("middle/bad.h", "#include <top/c.h>\n");
  EXPECT_EQ(layer_problems(source_), Problems{"middle/bad.h:1: includes 'top/c.h', but middle may not include top"});
}

TEST_F(LayersTest, FindsAClimbingInclude) {
  write("base/bad.h", "#include \"../top/c.h\"\n");
  EXPECT_EQ(layer_problems(source_),
            Problems{"base/bad.h:1: '../top/c.h' climbs out of its folder; write it from src/"});
}

TEST_F(LayersTest, FindsATypeThatTwoHeadersDefine) {
  write("base/a.h", "namespace kaon {\nstruct Step {\n};\nstruct Other;\n}  // namespace kaon\n");
  write("middle/b.h",
        "namespace kaon::lm {\nstruct Step {};\n}  // namespace kaon::lm\nnamespace kaon {\nstruct Other;\n");
  EXPECT_EQ(layer_problems(source_), Problems{});
  write("top/c.h", "namespace kaon {\nclass Step final : public Base {\n};\n}  // namespace kaon\n");
  EXPECT_EQ(layer_problems(source_), Problems{"top/c.h: 'kaon::Step' is defined in base/a.h too"});
}

TEST_F(LayersTest, FindsAFolderWithoutARow) {
  write("stray/d.h", "#include \"base/a.h\"\n");
  EXPECT_EQ(layer_problems(source_), Problems{"stray/: the folder has no row in layers.txt"});
}

TEST_F(LayersTest, FindsACycle) {
  write("layers.txt", "base: top\nmiddle: base\ntop: middle\n");
  EXPECT_EQ(layer_problems(source_), (Problems{"layers.txt: 'base' may include itself through others: a cycle",
                                               "layers.txt: 'middle' may include itself through others: a cycle",
                                               "layers.txt: 'top' may include itself through others: a cycle"}));
}

TEST_F(LayersTest, FindsMistakesInTheTable) {
  write("layers.txt", "base:\nmiddle: base\nmiddle:\ntop: middle bse\nnonsense\n");
  EXPECT_EQ(layer_problems(source_),
            (Problems{"layers.txt: 'top' names 'bse', which has no row", "layers.txt:3: a second row for 'middle'",
                      "layers.txt:5: no colon in 'nonsense'"}));
}

TEST_F(LayersTest, FindsAMissingTable) {
  std::filesystem::remove(source_ / "layers.txt");
  EXPECT_FALSE(layer_problems(source_).empty());
}

}  // namespace
}  // namespace kaon
