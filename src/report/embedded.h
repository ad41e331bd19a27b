#pragma once
#include <string_view>

namespace kaon {

/// A file that was made part of the program by kaon_embed (cmake/kaon.cmake); empty for another name.
std::string_view embedded_file(std::string_view name);

}  // namespace kaon
