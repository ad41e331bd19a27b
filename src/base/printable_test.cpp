#include "base/printable.h"

#include <gtest/gtest.h>

namespace kaon {
namespace {

TEST(Printable, LeavesWordsAlone) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("layer1.conv\n\tfc → Größe 量"), "layer1.conv\n\tfc → Größe 量");
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("\x1b]0;pwned\x07\x1b[31m.weight"), "\\x1b]0;pwned\\x07\\x1b[31m.weight");
  EXPECT_EQ(printable("a\rb\x7f"), "a\\x0db\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");  // the one-character form of ESC [
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

TEST(Printable, ShowsWhatIsNoUtf8) {
  EXPECT_EQ(printable("\xff.weight"), "\\xff.weight");
  EXPECT_EQ(printable("\xe2\x86"), "\\xe2\\x86");
  EXPECT_EQ(printable("\xc0\xafx"), "\\xc0\\xafx");
}

}  // namespace
}  // namespace kaon
