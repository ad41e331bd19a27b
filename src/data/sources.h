#pragma once
#include <string>

#include "data/dataset.h"
#include "io/npy/npy.h"

// One function for each kind of source; see open_dataset for what they promise.
namespace kaon {

/// Arrays in memory or mapped, named like the inputs, and "labels". A single array without a name goes to the model's
/// only input. `where` is the file they came from.
std::unique_ptr<Dataset> open_arrays(NamedTensors arrays, const std::vector<ValueInfo>& inputs,
                                     const DatasetOptions& options, const std::string& where);
/// The tensor (its name is empty) or the dict of tensors in a file of torch.save, either of its layouts.
NamedTensors read_torch_file(const std::filesystem::path& path);
std::unique_ptr<Dataset> open_test_data(const std::filesystem::path& folder, const std::vector<ValueInfo>& inputs,
                                        const DatasetOptions& options);
std::unique_ptr<Dataset> open_description(const std::filesystem::path& path, const std::vector<ValueInfo>& inputs,
                                          const DatasetOptions& options);

}  // namespace kaon
