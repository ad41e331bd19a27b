#include "layers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

namespace kaon {

namespace {

namespace fs = std::filesystem;

/// folder -> the folders it may include; at first those its row names, after `close` also what those may include.
using Table = std::map<std::string, std::set<std::string>>;

Table read_table(const fs::path& path, std::vector<std::string>& problems) {
  Table table;
  std::ifstream file(path);
  if (!file) problems.push_back(path.string() + ": cannot be read");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) {
      problems.push_back(fmt::format("layers.txt:{}: no colon in '{}'", number, line));
      continue;
    }
    const auto [row, added] = table.emplace(line.substr(0, colon), std::set<std::string>());
    if (!added) problems.push_back(fmt::format("layers.txt:{}: a second row for '{}'", number, row->first));
    std::istringstream words(line.substr(colon + 1));
    for (std::string word; words >> word;) row->second.insert(word);
  }
  for (const auto& [folder, allowed] : table) {
    for (const std::string& name : allowed) {
      if (!table.contains(name))
        problems.push_back(fmt::format("layers.txt: '{}' names '{}', which has no row", folder, name));
    }
  }
  return table;
}

void close(Table& table, std::vector<std::string>& problems) {
  for (bool grown = true; grown;) {
    grown = false;
    for (auto& [folder, allowed] : table) {
      const size_t before = allowed.size();
      for (const std::string& name : std::set(allowed)) {
        if (const auto row = table.find(name); row != table.end())
          allowed.insert(row->second.begin(), row->second.end());
      }
      grown = grown || allowed.size() != before;
    }
  }
  for (const auto& [folder, allowed] : table) {
    if (allowed.contains(folder))
      problems.push_back(fmt::format("layers.txt: '{}' may include itself through others: a cycle", folder));
  }
}

/// What stands between the quotes or brackets of an include line.
std::optional<std::string> included_path(const std::string& line) {
  std::istringstream words(line);
  char hash = 0;
  std::string directive;
  if (!(words >> hash) || hash != '#' || !(words >> directive) || !directive.starts_with("include"))
    return std::nullopt;
  const size_t open = line.find_first_of("\"<");
  if (open == std::string::npos) return std::nullopt;
  const size_t end = line.find(line[open] == '<' ? '>' : '"', open + 1);
  return line.substr(open + 1, end - open - 1);
}

void check_file(const fs::path& path, const std::string& shown, const std::string& folder, const Table& table,
                std::vector<std::string>& problems) {
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto include = included_path(line);
    if (!include) continue;
    if (include->find("..") != std::string::npos) {
      problems.push_back(
          fmt::format("{}:{}: '{}' climbs out of its folder; write it from src/", shown, number, *include));
      continue;
    }
    const std::string target = include->substr(0, include->find('/'));
    if (target == folder || !table.contains(target)) continue;
    if (!table.at(folder).contains(target)) {
      problems.push_back(
          fmt::format("{}:{}: includes '{}', but {} may not include {}", shown, number, *include, folder, target));
    }
  }
}

/// Two headers that define one name are two types to the compiler and one to the linker, which keeps the destructor of
/// either.
class Types {
 public:
  void read(const fs::path& path, const std::string& shown, std::vector<std::string>& problems) {
    static const std::regex kNamespace(R"(^namespace ([\w:]*) ?\{.*)");
    static const std::regex kType(R"(^(struct|class|enum class) (\w+)( [:{f].*)?$)");
    std::ifstream file(path);
    std::vector<std::string> within;
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (std::regex_match(line, match, kNamespace)) {
        within.push_back(match[1]);
      } else if (line.starts_with("}  // namespace") && !within.empty()) {
        within.pop_back();
      } else if (std::regex_match(line, match, kType)) {
        const std::string name = fmt::format("{}::{}", fmt::join(within, "::"), match[2].str());
        const auto [at, added] = where_.emplace(name, shown);
        if (!added) problems.push_back(fmt::format("{}: '{}' is defined in {} too", shown, name, at->second));
      }
    }
  }

 private:
  std::map<std::string, std::string> where_;
};

}  // namespace

std::vector<std::string> layer_problems(const fs::path& source) {
  std::vector<std::string> problems;
  Table table = read_table(source / "layers.txt", problems);
  close(table, problems);
  std::vector<fs::directory_entry> entries;
  for (const auto& entry : fs::recursive_directory_iterator(source)) entries.push_back(entry);
  std::sort(entries.begin(), entries.end());
  Types types;
  for (const auto& entry : entries) {
    const fs::path relative = fs::relative(entry.path(), source);
    const std::string folder = *relative.begin();
    if (entry.is_directory()) {
      if (folder == relative && !table.contains(folder)) {
        problems.push_back(fmt::format("{}/: the folder has no row in layers.txt", folder));
      }
      continue;
    }
    const std::string extension = entry.path().extension();
    if (table.contains(folder) && (extension == ".h" || extension == ".cpp")) {
      check_file(entry.path(), relative.string(), folder, table, problems);
      if (extension == ".h") types.read(entry.path(), relative.string(), problems);
    }
  }
  std::sort(problems.begin(), problems.end());
  return problems;
}

}  // namespace kaon
