// Runs the commands of a .case file and compares what came back:
//
//   $ kaon formats --json       a command line for sh; `kaon` is the program under test
//   exit 0                      the exit code, required
//   out GLOB, err GLOB          a line of stdout or stderr that matches: * any run, ? one character
//   out! GLOB, err! GLOB        no line may match
//   out-empty, err-empty        nothing at all came out
//   out-json                    stdout is one JSON document
//
// Lines that start with # are comments. Commands run in a fresh folder of their own, $KAON_SOURCE is the repository.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/text.h"

namespace fs = std::filesystem;

namespace {

struct Case {
  int line = 0;
  std::string command;
  std::vector<std::string> expectations;
};

struct Result {
  int code = 0;
  std::string out;
  std::string err;
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Case> read_cases(const fs::path& path) {
  std::vector<Case> cases;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("$ ")) {
      cases.push_back({number, line.substr(2), {}});
    } else if (cases.empty()) {
      std::cerr << path.string() << ':' << number << ": an expectation before any command\n";
      std::exit(2);
    } else {
      cases.back().expectations.push_back(line);
    }
  }
  return cases;
}

Result run(const std::string& command, const fs::path& folder) {
  const fs::path out = folder / ".stdout", err = folder / ".stderr";
  const fs::path script = folder / ".command";
  std::ofstream(script) << command << '\n';
  const std::string line = "cd '" + folder.string() + "' && sh .command >.stdout 2>.stderr </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read(out), read(err)};
}

bool any_line_matches(const std::string& text, const std::string& pattern) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (kaon::glob_match(pattern, line)) return true;
  }
  return false;
}

bool holds(const std::string& expectation, const Result& result) {
  const size_t space = expectation.find(' ');
  const std::string word = expectation.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : expectation.substr(space + 1);
  if (word == "exit") return std::to_string(result.code) == rest;
  if (word == "out") return any_line_matches(result.out, rest);
  if (word == "err") return any_line_matches(result.err, rest);
  if (word == "out!") return !any_line_matches(result.out, rest);
  if (word == "err!") return !any_line_matches(result.err, rest);
  if (word == "out-empty") return result.out.empty();
  if (word == "err-empty") return result.err.empty();
  if (word == "out-json") return nlohmann::json::accept(result.out);
  std::cerr << "unknown expectation '" << expectation << "'\n";
  std::exit(2);
}

/// The expectations of `c` that do not hold.
std::vector<std::string> failures(const Case& c, const Result& result) {
  std::vector<std::string> failed;
  bool has_exit = false;
  for (const std::string& expectation : c.expectations) {
    has_exit = has_exit || expectation.starts_with("exit ");
    if (!holds(expectation, result)) failed.push_back(expectation);
  }
  if (!has_exit) failed.emplace_back("an 'exit' line");
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool all_wrong = arguments.size() == 3 && arguments[0] == "--all-wrong";
  if (arguments.size() != 2 && !all_wrong) {
    std::cerr << "usage: cli_runner [--all-wrong] KAON FILE.case\n";
    return 2;
  }
  const fs::path program = fs::absolute(arguments[arguments.size() - 2]);
  const fs::path file = fs::absolute(arguments.back());
  std::string folder_template = fs::temp_directory_path() / "kaon_cli_XXXXXX";
  const fs::path folder = ::mkdtemp(folder_template.data());
  ::setenv("PATH", (program.parent_path().string() + ":" + std::getenv("PATH")).c_str(), 1);
  ::setenv("KAON_SOURCE", KAON_SOURCE_DIR, 1);

  const auto cases = read_cases(file);
  int bad = cases.empty() ? 1 : 0;
  if (cases.empty()) std::cerr << file.string() << ": no commands\n";
  for (const Case& c : cases) {
    const Result result = run(c.command, folder);
    const auto failed = failures(c, result);
    if (failed.empty() != all_wrong) continue;
    ++bad;
    std::cerr << file.string() << ':' << c.line << ": " << c.command << '\n';
    if (all_wrong) std::cerr << "  was accepted\n";
    for (const std::string& expectation : failed) std::cerr << "  expected: " << expectation << '\n';
    std::cerr << "  exit " << result.code << "\n--- stdout\n" << result.out << "--- stderr\n" << result.err;
  }
  fs::remove_all(folder);
  return bad == 0 ? 0 : 1;
}
