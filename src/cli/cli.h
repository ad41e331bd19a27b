#pragma once
#include <iosfwd>

namespace kaon {

/// The `kaon` command. Returns the exit code: 0 done, 1 the work failed, 2 wrong usage.
int run_cli(int argc, const char* const* argv, std::ostream& out, std::ostream& err);

}  // namespace kaon
