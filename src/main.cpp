#include <cstdlib>
#include <iostream>

#include "cli/cli.h"
#include "cli/interrupt.h"

int main(int argc, char** argv) {
  kaon::clean_up_on_signals();
  const int code = kaon::run_cli(argc, argv, std::cout, std::cerr);
#ifndef __SANITIZE_ADDRESS__  // its search for leaks runs at a normal exit
  std::cout.flush();
  std::cerr.flush();
  std::fflush(nullptr);
  std::_Exit(code);  // libtorch would take 50 ms to unregister its operators
#endif
  return code;
}
