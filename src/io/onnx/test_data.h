#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace kaon {

/// The tensors stem_0.pb, stem_1.pb … of an ONNX test-data folder; stem is "input" or "output".
std::vector<Tensor> read_test_tensors(const std::filesystem::path& folder, const std::string& stem);

/// The tensor as `info` declares it: some test data hold bfloat16 as bare uint16.
Tensor as_declared(const Tensor& tensor, const ValueInfo& info);

}  // namespace kaon
