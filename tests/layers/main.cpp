#include <iostream>

#include "layers.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: layers SOURCE_FOLDER\n";
    return 2;
  }
  const auto problems = kaon::layer_problems(argv[1]);
  for (const std::string& problem : problems) std::cerr << problem << '\n';
  return problems.empty() ? 0 : 1;
}
