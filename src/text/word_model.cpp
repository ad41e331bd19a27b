#include "text/word_model.h"

#include <fmt/format.h>

namespace kaon {

Vocab::Vocab(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
  ids_.reserve(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (!pieces_[id].empty()) ids_[pieces_[id]] = static_cast<int32_t>(id);
  }
}

std::vector<int32_t> byte_pieces(const Vocab& vocab) {
  std::vector<int32_t> ids;
  for (int byte = 0; byte < 256; ++byte) ids.push_back(vocab.find(fmt::format("<0x{:02X}>", byte)));
  return ids;
}

}  // namespace kaon
