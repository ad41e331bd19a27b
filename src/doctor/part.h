#pragma once
#include "graph/dataset.h"

namespace kaon {

/// Neighbouring samples of a dataset.
class Part : public Dataset {
 public:
  Part(const Dataset& all, int64_t first, int64_t count) : all_(all), first_(first), count_(count) {}
  int64_t size() const override { return count_; }
  bool has_labels() const override { return all_.has_labels(); }
  Batch read(int64_t first, int64_t count) const override { return all_.read(first_ + first, count); }
  const SideInputs& side_inputs() const override { return all_.side_inputs(); }

 private:
  const Dataset& all_;
  int64_t first_;
  int64_t count_;
};

}  // namespace kaon
