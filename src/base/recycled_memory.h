#pragma once
#include <cstddef>
#include <memory>

namespace kaon {

/// Memory that nobody has set, freed with its last owner, or kept for the next of its size while a Recycling lives.
std::shared_ptr<std::byte> recycled_bytes(size_t size);

/// For work that needs large memory of the same sizes again and again, as a model block by block does: to get it from
/// the system, which clears it page by page, takes longer than to fill it.
class Recycling {
 public:
  Recycling();
  ~Recycling();
  Recycling(const Recycling&) = delete;
  Recycling& operator=(const Recycling&) = delete;
};

}  // namespace kaon
