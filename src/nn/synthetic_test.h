#pragma once
// Small made-up data for the tests.
#include <vector>

#include "graph/dataset.h"
#include "numerics/random.h"

namespace kaon::nn {

/// Images of noise in which one of `classes` rows is bright: its number is the class.
class BrightRows : public Dataset {
 public:
  BrightRows(int64_t size, int64_t side, int64_t classes, uint64_t seed = 1, int64_t labels_from = 0)
      : size_(size), side_(side), classes_(classes), seed_(seed), labels_from_(labels_from) {}

  int64_t size() const override { return size_; }
  bool has_labels() const override { return true; }
  Batch read(int64_t first, int64_t count) const override {
    std::vector<float> pixels;
    std::vector<int64_t> labels;
    for (int64_t i = first; i < first + count; ++i) {
      const int64_t label = i % classes_;
      labels.push_back(label + labels_from_);
      for (int64_t at = 0; at < side_ * side_; ++at) {
        const float noise = random_unit(seed_, static_cast<uint64_t>(i * side_ * side_ + at));
        pixels.push_back(noise + (at / side_ == label ? 0.6F : 0.0F));
      }
    }
    Batch batch;
    batch.inputs["input"] = Tensor::of<float>({count, 1, side_, side_}, pixels);
    batch.labels = Tensor::of<int64_t>({count}, labels);
    return batch;
  }

 private:
  int64_t size_, side_, classes_;
  uint64_t seed_;
  int64_t labels_from_;
};

}  // namespace kaon::nn
