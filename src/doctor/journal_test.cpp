#include "doctor/journal.h"

#include <gtest/gtest.h>

#include <fstream>

#include "graph/build_test.h"

namespace kaon {
namespace {

std::filesystem::path fresh(const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / ("kaon_journal_" + name);
  std::filesystem::remove(path);
  return path;
}

TEST(Journal, RemembersWhatAnEarlierRunNoted) {
  const auto path = fresh("remembers");
  Journal(path, "patient", false).note("a \"key\"", "[1,2.5]");
  Journal later(path, "patient", true);
  ASSERT_NE(later.find("a \"key\""), nullptr);
  EXPECT_EQ(*later.find("a \"key\""), "[1,2.5]");
  EXPECT_EQ(later.find("another"), nullptr);
}

TEST(Journal, DropsALineThatWasCutOff) {
  const auto path = fresh("cut");
  Journal(path, "patient", false).note("first", "1");
  std::ofstream(path, std::ios::app) << R"({"key":"second","val)";
  Journal later(path, "patient", true);
  EXPECT_NE(later.find("first"), nullptr);
  EXPECT_EQ(later.find("second"), nullptr);
  later.note("third", "3");
  EXPECT_NE(Journal(path, "patient", true).find("third"), nullptr);
}

TEST(Journal, AppearsWithTheFirstMeasurement) {
  const auto path = fresh("appears");
  Journal journal(path, "patient", false);
  EXPECT_FALSE(std::filesystem::exists(path));
  journal.note("first", "1");
  EXPECT_NE(Journal(path, "patient", true).find("first"), nullptr);
}

TEST(Journal, BelongsToOneSubject) {
  const auto path = fresh("subject");
  Journal(path, "patient", false).note("first", "1");
  error_of(ErrorCode::InvalidInput, [&] { Journal(path, "somebody else", true); });
  EXPECT_EQ(Journal(path, "somebody else", false).find("first"), nullptr);
}

}  // namespace
}  // namespace kaon
