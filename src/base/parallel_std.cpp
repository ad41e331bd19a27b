#include <thread>
#include <vector>

#include "base/parallel_backend.h"

namespace kaon {

void adapt_waits() {}  // none of these threads waits for the next loop

void run_pieces(int count, const std::function<void(int)>& body) {
  std::vector<std::jthread> threads;
  for (int piece = 1; piece < count; ++piece) threads.emplace_back([&body, piece] { body(piece); });
  body(0);
}

}  // namespace kaon
