#include <kaon/numerics/format.h>

#include <iostream>

int main() {
  for (const auto& [name, format] : kaon::formats().items()) {
    std::cout << name << ' ' << format.bits << '\n';
  }
}
