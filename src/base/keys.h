#pragma once
#include <string>
#include <vector>

namespace kaon {

/// Throws InvalidConfig at `where` unless `key` is one of `known`; the message names the nearest, or all of them.
void expect_known_key(const std::string& key, const std::vector<std::string>& known, const std::string& where);

}  // namespace kaon
