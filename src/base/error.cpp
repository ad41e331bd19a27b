#include "base/error.h"

namespace kaon {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidInput: return "invalid input";
    case ErrorCode::CorruptFile: return "corrupt file";
    case ErrorCode::Unsupported: return "unsupported";
    case ErrorCode::InvalidConfig: return "invalid config";
    case ErrorCode::Numeric: return "numeric";
    case ErrorCode::Io: return "io";
    case ErrorCode::Internal: return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, std::string message, std::string where)
    : std::runtime_error(where.empty() ? message : where + ": " + message),
      code_(code),
      message_(std::move(message)),
      where_(std::move(where)) {}

}  // namespace kaon
