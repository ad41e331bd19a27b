#include "base/keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace kaon {

void expect_known_key(const std::string& key, const std::vector<std::string>& known, const std::string& where) {
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  const std::string near = nearest(key, known);
  if (!near.empty()) fail(ErrorCode::InvalidConfig, where, "unknown key '{}'; did you mean '{}'?", key, near);
  fail(ErrorCode::InvalidConfig, where, "unknown key '{}'; known are {}", key, fmt::join(known, ", "));
}

}  // namespace kaon
