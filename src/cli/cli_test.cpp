#include "cli/cli.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/parallel.h"
#include "cli/verb.h"

namespace kaon {
namespace {

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

Outcome kaon_with(std::initializer_list<const char*> arguments) {
  std::vector<const char*> argv{"kaon"};
  argv.insert(argv.end(), arguments);
  std::ostringstream out, err;
  const int code = run_cli(static_cast<int>(argv.size()), argv.data(), out, err);
  return {code, out.str(), err.str()};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST(Cli, EveryVerbHelps) {
  Registry<Verb> verbs("verb");
  register_all_verbs(verbs);
  const Outcome whole = kaon_with({"--help"});
  EXPECT_EQ(whole.code, 0);
  for (const auto& [name, verb] : verbs.items()) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(contains(whole.out, "  " + name)) << whole.out;
    EXPECT_TRUE(contains(whole.out, verb.summary));
    const Outcome one = kaon_with({name.c_str(), "--help"});
    EXPECT_EQ(one.code, 0);
    EXPECT_EQ(one.err, "");
    EXPECT_TRUE(contains(one.out, "Usage: kaon " + name));
    for (const char* flag : {"--verbose", "--quiet", "--threads N", "--seed N", "--json[=FILE]", "--help"}) {
      EXPECT_TRUE(contains(one.out, flag)) << one.out;
    }
    for (const std::string& example : verb.examples) {
      EXPECT_TRUE(example.starts_with("kaon " + name)) << example;
      EXPECT_TRUE(contains(one.out, example));
    }
  }
}

TEST(Cli, CommonFlagsStandBeforeOrAfterTheVerb) {
  const Outcome before = kaon_with({"--json", "formats"});
  const Outcome after = kaon_with({"formats", "--json"});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_EQ(before.out, after.out);
  EXPECT_TRUE(nlohmann::json::accept(before.out));
}

TEST(Cli, JsonIntoAFile) {
  const auto path = std::filesystem::path(testing::TempDir()) / "kaon_cli_test.json";
  std::filesystem::remove(path);
  const Outcome table = kaon_with({"formats"});
  const Outcome run = kaon_with({"formats", ("--json=" + path.string()).c_str()});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.out, table.out);
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file), nlohmann::json::parse(kaon_with({"formats", "--json"}).out));
  std::filesystem::remove(path);
}

TEST(Cli, AFileThatCannotBeWrittenIsAFailure) {
  const Outcome run = kaon_with({"formats", "--json=/dev/null/at/all.json"});
  EXPECT_EQ(run.code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_TRUE(run.err.starts_with("kaon: /dev/null/at/all.json: ")) << run.err;
}

TEST(Cli, AStdoutThatCannotBeWrittenIsAFailure) {
  std::ostringstream out, err;
  out.setstate(std::ios::badbit);
  const char* arguments[] = {"kaon", "formats"};
  EXPECT_EQ(run_cli(2, arguments, out, err), 1);
  EXPECT_EQ(err.str(), "kaon: stdout: cannot write the result\n");
}

TEST(Cli, SetsTheThreadCount) {
  const int before = thread_count();
  EXPECT_EQ(kaon_with({"formats", "--threads", "3", "-q"}).code, 0);
  EXPECT_EQ(thread_count(), 3);
  set_thread_count(before);
}

TEST(Cli, QuietWinsOverVerbose) {
  EXPECT_NE(kaon_with({"formats", "-v"}).err, "");
  EXPECT_EQ(kaon_with({"formats", "-v", "-q"}).err, "");
}

}  // namespace
}  // namespace kaon
