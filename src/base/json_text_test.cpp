#include "base/json_text.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace kaon {
namespace {

TEST(JsonText, NestsOnlySoDeep) {
  const auto nested = [](size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64), "f.json"));
  EXPECT_THROW(parse_json(nested(300'000), "f.json"), Error);
}

TEST(JsonText, NoKeyStandsTwiceInOneObject) {
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 2}])", "f.json"));
  EXPECT_THROW(parse_json(R"({"a": 1, "b": {}, "a": 2})", "f.json"), Error);
}

TEST(JsonText, TakesNamesThatAreNoUtf8) {
  EXPECT_EQ(json_text(nlohmann::json{{"name", "\xff"}}), "{\"name\":\"\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace kaon
