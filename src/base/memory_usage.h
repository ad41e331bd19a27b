#pragma once

namespace kaon {

/// The largest resident set this process has had so far, in MiB; 0 where the system does not say.
double peak_memory_mb();

}  // namespace kaon
