#pragma once
#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace kaon {

enum class ErrorCode { InvalidInput, CorruptFile, Unsupported, InvalidConfig, Numeric, Io, Internal };

std::string_view to_string(ErrorCode code);

/// The only exception Kaon throws. `what()` is "where: message", or just the message.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, std::string message, std::string where = {});

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  /// The file, node, key or parameter at fault; may be empty.
  const std::string& where() const { return where_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::string where_;
};

/// Throws Error{code, formatted message, where}.
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, std::string where, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...), std::move(where));
}

}  // namespace kaon
