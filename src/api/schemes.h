#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kaon {

/// A row of `kaon schemes`; slots that stay float are empty.
struct SchemeInfo {
  std::string name;
  std::string summary;
  std::string strategy;
  std::string weight;
  std::string input;
  std::string output;
  std::string bias;
  bool needs_data = false;
  std::vector<std::string> exports;  ///< formats that hold it: "onnx", of language models "compressed-tensors" …
};

std::vector<SchemeInfo> list_schemes();

/// Slots that stay float become null.
nlohmann::ordered_json to_json(const std::vector<SchemeInfo>& schemes);

}  // namespace kaon
