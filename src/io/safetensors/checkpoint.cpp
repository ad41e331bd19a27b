#include "io/safetensors/checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/safetensors/safetensors.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kSingle = "model.safetensors";

/// A plain name: the index must not lead out of its folder.
bool is_plain_name(const std::string& file) {
  return !file.empty() && file.find('/') == std::string::npos && file.find('\\') == std::string::npos && file != "." &&
         file != ".." && file.find('\0') == std::string::npos;
}

std::map<std::string, std::string> read_index(const fs::path& path) {
  const auto file = MappedFile::open(path);
  try {
    return parse_shard_index({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()});
  } catch (const Error& error) {
    throw Error(error.code(), error.message(), path.string() + (error.where().empty() ? "" : ": " + error.where()));
  }
}

void add_file(const fs::path& path, std::map<std::string, CheckpointTensor>& tensors) {
  NamedTensors in_file = read_safetensors(path);
  auto at = static_cast<int64_t>(fs::file_size(path));
  for (const auto& [name, tensor] : in_file) at -= tensor.byte_size();
  for (auto& [name, tensor] : in_file) {
    const int64_t offset = at;
    at += tensor.byte_size();
    const auto [it, added] = tensors.emplace(name, CheckpointTensor{std::move(tensor), path, offset});
    if (!added) {
      fail(ErrorCode::CorruptFile, path.string(), "the tensor '{}' is also in {}", name,
           it->second.file.filename().string());
    }
  }
}

std::vector<fs::path> files_without_index(const fs::path& folder) {
  if (fs::exists(folder / kSingle)) return {folder / kSingle};
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  if (files.empty()) {
    fail(ErrorCode::InvalidInput, folder.string(), "no weights: neither {} nor any .safetensors file is there", kIndex);
  }
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::map<std::string, std::string> parse_shard_index(std::string_view text) {
  const nlohmann::json index = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (index.is_discarded()) fail(ErrorCode::CorruptFile, "", "no valid JSON");
  const auto map = index.find("weight_map");
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    fail(ErrorCode::CorruptFile, "weight_map", "an object that names the file of each tensor is needed");
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      fail(ErrorCode::CorruptFile, "weight_map, '" + tensor.substr(0, 80) + "'",
           "the name of a file in the same folder is needed");
    }
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

std::map<std::string, CheckpointTensor> read_checkpoint(const fs::path& folder) {
  std::map<std::string, CheckpointTensor> tensors;
  if (!fs::exists(folder / kIndex)) {
    for (const fs::path& file : files_without_index(folder)) add_file(file, tensors);
    return tensors;
  }
  const std::map<std::string, std::string> index = read_index(folder / kIndex);
  const std::string where = (folder / kIndex).string();
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  for (const std::string& shard : shards) {
    if (!fs::exists(folder / shard)) {
      fail(ErrorCode::Io, where, "the shard '{}' that it names is not in the folder", shard);
    }
    add_file(folder / shard, tensors);
  }
  for (const auto& [tensor, file] : index) {
    const auto it = tensors.find(tensor);
    if (it == tensors.end() || it->second.file.filename() != file) {
      fail(ErrorCode::CorruptFile, where, "the tensor '{}' is not in '{}'", tensor, file);
    }
  }
  for (const auto& [tensor, at] : tensors) {
    if (!index.contains(tensor)) {
      fail(ErrorCode::CorruptFile, at.file.string(), "the tensor '{}' is not in the index", tensor);
    }
  }
  return tensors;
}

}  // namespace kaon
