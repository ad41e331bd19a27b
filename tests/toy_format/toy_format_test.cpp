#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/cli.h"
#include "numerics/format.h"

namespace kaon {
namespace {

std::string kaon_formats(const char* flag) {
  const char* arguments[] = {"kaon", "formats", flag};
  std::ostringstream out, err;
  EXPECT_EQ(run_cli(3, arguments, out, err), 0) << err.str();
  return out.str();
}

TEST(ToyFormat, StandsInTheRegistry) {
  EXPECT_EQ(format("toy5").bits, 5);
  EXPECT_NE(formats().find("int8"), nullptr) << "and the others are still there";
}

TEST(ToyFormat, StandsInTheTable) { EXPECT_NE(kaon_formats("-q").find("\ntoy5"), std::string::npos); }

TEST(ToyFormat, StandsInTheJson) {
  const auto rows = nlohmann::json::parse(kaon_formats("--json"));
  const auto row = std::find_if(rows.begin(), rows.end(), [](const auto& r) { return r["name"] == "toy5"; });
  ASSERT_NE(row, rows.end());
  EXPECT_EQ((*row)["bits"], 5);
  EXPECT_EQ((*row)["kind"], "integer");
  EXPECT_EQ((*row)["min"], 0);
  EXPECT_EQ((*row)["max"], 31);
  EXPECT_TRUE((*row)["block"].is_null());
  EXPECT_TRUE((*row)["onnx_type"].is_null());
}

}  // namespace
}  // namespace kaon
