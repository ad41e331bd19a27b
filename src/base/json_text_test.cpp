#include "base/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace kaon {
namespace {

TEST(JsonText, NestsOnlySoDeep) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(nlohmann::json::parse(nested(64), bounded_depth("f.json")));
  EXPECT_THROW(nlohmann::json::parse(nested(300'000), bounded_depth("f.json")), Error);
}

TEST(JsonText, TakesNamesThatAreNoUtf8) {
  EXPECT_EQ(json_text(nlohmann::json{{"name", "\xff"}}), "{\"name\":\"\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace kaon
