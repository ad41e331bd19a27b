#pragma once
#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "graph/dataset.h"
#include "graph/graph.h"

namespace kaon {

inline constexpr std::array<std::string_view, 10> kFashionClasses{
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"};

enum class Split { Train, Test };

/// The four files of Fashion-MNIST: 60,000 images to train on and 10,000 to test on, 28×28 grey pixels.
class FashionMnist {
 public:
  /// Looks in `folder`; where that is empty, in the folder that the environment's KAON_DATA names, and then where
  /// Debian's package puts them. Throws Io saying what would provide them.
  explicit FashionMnist(const std::filesystem::path& folder = {});

  const std::filesystem::path& folder() const { return folder_; }
  /// Samples for a model with one input [batch, 1, 28, 28], pixels from 0 to 1. `limit` samples at most; 0 = all.
  std::unique_ptr<Dataset> open(Split split, const Graph& graph, int64_t limit = 0) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace kaon
