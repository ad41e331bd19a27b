#include "api/fashion_mnist.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "data/description.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPackageFolder = "/usr/share/datasets/fashion-mnist";

struct SplitFiles {
  const char* images;
  const char* labels;
};

SplitFiles files_of(Split split) {
  if (split == Split::Train) return {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"};
  return {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
}

/// The file's name as it is there, gzipped or not; empty where it is not.
std::string find_file(const fs::path& folder, const std::string& name) {
  for (const std::string& candidate : {name + ".gz", name}) {
    if (fs::is_regular_file(folder / candidate)) return candidate;
  }
  return "";
}

bool has_all(const fs::path& folder) {
  for (const Split split : {Split::Train, Split::Test}) {
    const SplitFiles files = files_of(split);
    if (find_file(folder, files.images).empty() || find_file(folder, files.labels).empty()) return false;
  }
  return true;
}

std::vector<fs::path> places(const fs::path& folder) {
  if (!folder.empty()) return {folder};
  std::vector<fs::path> places;
  if (const char* data = std::getenv("KAON_DATA"); data != nullptr && *data != '\0') {
    places.insert(places.end(), {data, fs::path(data) / "fashion-mnist"});
  }
  places.emplace_back(kPackageFolder);
  return places;
}

}  // namespace

FashionMnist::FashionMnist(const fs::path& folder) {
  const std::vector<fs::path> looked = places(folder);
  for (const fs::path& place : looked) {
    if (!has_all(place)) continue;
    folder_ = place;
    return;
  }
  std::string where;
  for (const fs::path& place : looked) where += (where.empty() ? "" : ", ") + place.string();
  fail(ErrorCode::Io, where,
       "Fashion-MNIST is not there: apt install dataset-fashion-mnist, or give --data DIR (or KAON_DATA) with "
       "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
       "t10k-labels-idx1-ubyte.gz");
}

std::unique_ptr<Dataset> FashionMnist::open(Split split, const Graph& graph, int64_t limit) const {
  const SplitFiles files = files_of(split);
  const nlohmann::json json{{"idx", find_file(folder_, files.images)},
                            {"labels", find_file(folder_, files.labels)},
                            {"shape", {1U, 28U, 28U}}};
  return open_idx(Description(json, folder_, folder_.string()), graph.required_inputs(), {.limit = limit});
}

}  // namespace kaon
