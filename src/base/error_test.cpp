#include "base/error.h"

#include <gtest/gtest.h>

#include <set>

namespace kaon {
namespace {

TEST(Error, CarriesCodeMessageAndWhere) {
  try {
    fail(ErrorCode::InvalidConfig, "scheme", "'{}' has {} bits; 2 to 16 are possible", "w99", 99);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidConfig);
    EXPECT_EQ(error.message(), "'w99' has 99 bits; 2 to 16 are possible");
    EXPECT_EQ(error.where(), "scheme");
    EXPECT_STREQ(error.what(), "scheme: 'w99' has 99 bits; 2 to 16 are possible");
    return;
  }
  FAIL() << "fail() returned";
}

TEST(Error, WithoutWhereIsTheMessageAlone) { EXPECT_STREQ(Error(ErrorCode::Io, "disk full").what(), "disk full"); }

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::Internal); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(ErrorCode::Internal) + 1);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(to_string(ErrorCode::CorruptFile), "corrupt file");
}

}  // namespace
}  // namespace kaon
