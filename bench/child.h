#pragma once
#include <string>
#include <vector>

namespace kaon::bench {

/// A program at work, with pipes to its stdin and from its stdout.
struct Child {
  int pid = -1;
  int to = -1;    ///< its stdin
  int from = -1;  ///< its stdout
};

/// Throws Io where it cannot be started.
Child start(const std::vector<std::string>& command);
/// Closes the pipes and waits; the exit status.
int stop(const Child& child);
/// What it says up to its end, or to a line's end.
std::string read_text(int from, bool one_line);

/// What a command prints on stdout; throws unless it succeeds.
std::string output_of(const std::vector<std::string>& command);

}  // namespace kaon::bench
