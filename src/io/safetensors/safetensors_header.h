#pragma once
#include <string>
#include <vector>

#include "io/safetensors/safetensors_draft.h"

namespace kaon {

/// Puts tensors into the order of the reference writer; throws InvalidInput for a name that comes twice, Unsupported
/// for a type that the format lacks.
void sort_as_written(std::vector<PlannedTensor>& tensors, const std::string& where);

/// The header of tensors that follow each other, with its length before it, padded so that the data is aligned.
std::string safetensors_header(const std::vector<PlannedTensor>& tensors, const SafetensorsMetadata& metadata);

}  // namespace kaon
