#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace kaon {

/// The input called `name`, or the only one where `name` is empty. `where` is the file, for messages.
const ValueInfo& find_input(const std::vector<ValueInfo>& inputs, const std::string& name, const std::string& where);

/// Throws InvalidInput unless elements of `type` can become the input's and samples of this shape (without the axis
/// that counts them) fit its fixed dimensions. -1 is a dimension that is not known yet. `what` is the array or image.
/// Returns the type that the model is to get.
DType check_fits(DType type, const Shape& sample, const ValueInfo& input, const std::string& where,
                 const std::string& what);

/// Whether converting loses nothing but precision.
bool converts(DType from, DType to);
/// `converts(tensor.type(), to)` must hold.
Tensor convert(const Tensor& tensor, DType to);

/// Samples first … first + count - 1 of a tensor whose first axis counts them; the data is shared.
Tensor slice_samples(const Tensor& tensor, int64_t first, int64_t count);

/// Which samples of a source are used.
struct Selection {
  int64_t first = 0;
  int64_t count = 0;
};

/// `first` and then at most `limit` (0 = all) of `total` samples, options.limit winning over `limit`. Throws
/// InvalidInput where nothing is left.
Selection select_samples(int64_t total, int64_t first, int64_t limit, const DatasetOptions& options,
                         const std::string& where);

/// Throws InvalidInput unless first … first + count - 1 lie in [0, size).
void check_range(int64_t first, int64_t count, int64_t size);

}  // namespace kaon
