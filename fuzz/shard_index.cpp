// Any text gives the files of a shard index, all of them plain names, or a kaon::Error.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/error.h"
#include "io/safetensors/checkpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& [tensor, file] : kaon::parse_shard_index({reinterpret_cast<const char*>(data), size})) {
      const std::filesystem::path path(file);
      if (path.filename() != path || file == "..") std::abort();
    }
  } catch (const kaon::Error&) {
  }
  return 0;
}
