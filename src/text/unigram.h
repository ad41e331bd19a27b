#pragma once
#include "text/word_model.h"

namespace kaon {

struct UnigramOptions {
  int32_t unknown = -1;
  bool byte_fallback = false;
};

/// The segmentation whose scores sum to the most. A character that no piece covers costs 10 more than the least likely
/// piece; neighbouring ones are one unknown piece. `usable` says which pieces text may become.
std::unique_ptr<WordModel> make_unigram(Vocab vocab, std::vector<double> scores, const std::vector<bool>& usable,
                                        const UnigramOptions& options);

}  // namespace kaon
