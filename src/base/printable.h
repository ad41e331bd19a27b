#pragma once
#include <string>
#include <string_view>

namespace kaon {

/// `text` as a terminal may show it: control characters (line ends and tabs aside) and what is not UTF-8 as \x1b.
std::string printable(std::string_view text);

}  // namespace kaon
