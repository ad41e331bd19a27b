#include "cli/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kaon {
namespace {

TEST(Table, AlignsAndCountsCharacters) {
  Table table({{"name"}, {"bits", Table::Align::Right}, {"note"}});
  table.add_row({"größe", "8", ""});
  table.add_row({"b", "16", "–"});
  std::ostringstream out;
  table.print(out);
  EXPECT_EQ(out.str(),
            "name   bits  note\n"
            "-----  ----  ----\n"
            "größe     8\n"
            "b        16  –\n");
}

}  // namespace
}  // namespace kaon
