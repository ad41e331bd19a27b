#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace kaon {

/// Every way in which the tree at `source` breaks its own layers.txt, one line each; empty when it keeps to it. A type
/// that two headers define is one too.
std::vector<std::string> layer_problems(const std::filesystem::path& source);

}  // namespace kaon
