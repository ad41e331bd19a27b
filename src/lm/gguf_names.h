#pragma once
#include <string>

namespace kaon::lm {

/// What a tensor of the hub is called in a GGUF file; "" where it has no place there.
std::string gguf_tensor_name(const std::string& architecture, const std::string& hub);

/// GPT-2's matrices are stored [in, out] on the hub alone.
bool is_turned_in_gguf(const std::string& architecture, const std::string& hub);

}  // namespace kaon::lm
