#include "data/description.h"

#include "base/error.h"
#include "base/json_text.h"
#include "base/keys.h"
#include "base/mapped_file.h"
#include "data/sources.h"

namespace kaon {

namespace {

nlohmann::json parse(const std::filesystem::path& path) {
  const auto file = MappedFile::open(path);
  return parse_json({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()}, path.string());
}

}  // namespace

Description::Description(const std::filesystem::path& path)
    : Description(parse(path), path.parent_path(), path.string()) {}

Description::Description(nlohmann::json json, std::filesystem::path folder, std::string where)
    : folder_(std::move(folder)), where_(std::move(where)), json_(std::move(json)) {
  if (!json_.is_object()) fail(ErrorCode::InvalidConfig, where_, "a description is a JSON object");
}

void Description::wrong(const std::string& key, const std::string& accepted) const {
  fail(ErrorCode::InvalidConfig, where_, "\"{}\" must be {}", key, accepted);
}

void Description::check_keys(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : json_.items()) expect_known_key(key, known, where_);
}

std::string Description::text(const std::string& key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_string() || json_[key].get_ref<const std::string&>().empty()) wrong(key, "a string");
  return json_[key].get<std::string>();
}

std::filesystem::path Description::file(const std::string& key) const { return folder_ / text(key, ""); }

std::vector<std::filesystem::path> Description::files(const std::string& key) const {
  if (!has(key) || !json_[key].is_array()) return {file(key)};
  std::vector<std::filesystem::path> paths;
  for (const nlohmann::json& path : json_[key]) {
    if (!path.is_string() || path.get_ref<const std::string&>().empty()) wrong(key, "a path or a list of paths");
    paths.push_back(folder_ / path.get<std::string>());
  }
  if (paths.empty()) wrong(key, "a path or a list of paths");
  return paths;
}

const nlohmann::json& Description::object(const std::string& key) const {
  static const nlohmann::json none = nlohmann::json::object();
  if (!has(key)) return none;
  if (!json_[key].is_object()) wrong(key, "an object, {\"name\": …}");
  return json_[key];
}

int64_t Description::integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most) const {
  if (!has(key)) return otherwise;
  const nlohmann::json& value = json_[key];
  const bool fits = value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() >> 63 != 0);
  if (!fits || value.get<int64_t>() < least || value.get<int64_t>() > most) {
    wrong(key, fmt::format("an integer from {} to {}", least, most));
  }
  return value.get<int64_t>();
}

std::vector<int64_t> Description::integers(const std::string& key, int64_t least, int64_t most) const {
  std::vector<int64_t> out;
  const std::string accepted = fmt::format("a list of integers from {} to {}", least, most);
  if (!json_[key].is_array()) wrong(key, accepted);
  for (const nlohmann::json& value : json_[key]) {
    const bool fits = value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(most);
    if (!fits || value.get<int64_t>() < least) wrong(key, accepted);
    out.push_back(value.get<int64_t>());
  }
  return out;
}

std::vector<int64_t> Description::sides(const std::string& key, int64_t most) const {
  if (!has(key)) return {};
  if (!json_[key].is_array()) return {integer(key, 0, 1, most)};
  if (json_[key].size() != 2) wrong(key, fmt::format("an integer from 1 to {}, or two: [height, width]", most));
  return integers(key, 1, most);
}

double Description::number(const std::string& key, double otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_[key].is_number()) wrong(key, "a number");
  return json_[key].get<double>();
}

std::vector<double> Description::per_channel(const std::string& key, double otherwise, size_t channels) const {
  if (!has(key) || json_[key].is_number()) return std::vector<double>(channels, number(key, otherwise));
  std::vector<double> out;
  const std::string accepted = fmt::format("a number, or a list of {} of them, one for each channel", channels);
  if (!json_[key].is_array() || json_[key].size() != channels) wrong(key, accepted);
  for (const nlohmann::json& value : json_[key]) {
    if (!value.is_number()) wrong(key, accepted);
    out.push_back(value.get<double>());
  }
  return out;
}

Selection Description::select(int64_t total, const DatasetOptions& options) const {
  constexpr int64_t kMost = int64_t{1} << 48;
  return select_samples(total, integer("first", 0, 0, kMost), integer("limit", 0, 1, kMost), options, where_);
}

const ValueInfo& Description::input(const std::vector<ValueInfo>& inputs) const {
  return find_input(inputs, text("input", ""), where_);
}

std::vector<std::string> with_common_keys(std::vector<std::string> keys) {
  keys.insert(keys.end(), {"input", "first", "limit", "scale", "mean", "std"});
  return keys;
}

PixelValues::PixelValues(const Description& description, int64_t channels) {
  const double scale = description.number("scale", 1.0 / 255);
  const auto mean = description.per_channel("mean", 0, static_cast<size_t>(channels));
  const auto deviation = description.per_channel("std", 1, static_cast<size_t>(channels));
  for (size_t c = 0; c < mean.size(); ++c) {
    if (deviation[c] == 0) fail(ErrorCode::InvalidConfig, description.where(), "\"std\" must not be 0");
    std::array<float, 256>& table = tables_.emplace_back();
    for (size_t pixel = 0; pixel < table.size(); ++pixel) {
      table[pixel] = static_cast<float>((static_cast<double>(pixel) * scale - mean[c]) / deviation[c]);
    }
  }
}

void PixelValues::convert(const uint8_t* in, int64_t step, int64_t channel, float* out, int64_t out_step,
                          int64_t count) const {
  const float* table = tables_[static_cast<size_t>(channel)].data();
  for (int64_t i = 0; i < count; ++i) out[i * out_step] = table[in[i * step]];
}

Tensor class_tensor(const std::vector<int64_t>& classes, int64_t first, int64_t count) {
  return Tensor::of<int64_t>({count},
                             std::span(classes).subspan(static_cast<size_t>(first), static_cast<size_t>(count)));
}

std::unique_ptr<Dataset> open_description(const std::filesystem::path& path, const std::vector<ValueInfo>& inputs,
                                          const DatasetOptions& options) {
  const Description description(path);
  int kinds = 0;
  for (const char* key : {"images", "cifar", "idx", "text", "samples"}) kinds += int{description.has(key)};
  if (kinds != 1) {
    fail(ErrorCode::InvalidConfig, path.string(),
         "needs one of the keys \"images\", \"cifar\", \"idx\", \"text\" and \"samples\", and has {}", kinds);
  }
  if (description.has("text")) return open_text(description, inputs, options);
  if (description.has("samples")) return open_stateful(description, inputs, options);
  if (description.has("images")) return open_images(description, inputs, options);
  if (description.has("cifar")) return open_cifar(description, inputs, options);
  return open_idx(description, inputs, options);
}

}  // namespace kaon
