#pragma once
#include <cstdint>
#include <string>

namespace kaon {

/// How much memory this process may hold, in bytes; 0 (the default) leaves it to what the machine has free.
void set_memory_limit(int64_t bytes);

/// Bytes that may be allocated now: up to the limit, and never more than the machine has free.
int64_t memory_room();

/// Throws InvalidInput, naming `where` and the bytes, when `bytes` more do not fit. Small amounts are not looked at one
/// by one, only their sum.
void require_memory(int64_t bytes, const std::string& where = {});

}  // namespace kaon
