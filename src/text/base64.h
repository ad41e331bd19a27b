#pragma once
#include <string>
#include <string_view>

namespace kaon {

/// Throws CorruptFile naming `where` where the text is not base64.
std::string decode_base64(std::string_view text, const std::string& where);

}  // namespace kaon
