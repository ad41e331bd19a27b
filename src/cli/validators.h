#pragma once
#include <CLI/Validators.hpp>
#include <charconv>
#include <cstdint>
#include <string>

namespace kaon {

/// For flags that count something.
inline CLI::Validator at_least_one() {
  return {[](std::string& text) -> std::string {
            int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool whole = error == std::errc() && end == text.data() + text.size();
            return whole && value >= 1 ? "" : "'" + text + "' is not an integer of at least 1";
          },
          ""};
}

}  // namespace kaon
