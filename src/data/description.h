#pragma once
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/binding.h"

namespace kaon {

/// A description .json: an object whose values are asked for by key, checked. Throws InvalidConfig naming the file and
/// the key.
class Description {
 public:
  explicit Description(const std::filesystem::path& path);
  /// The same from memory: paths are relative to `folder`, errors name `where`.
  Description(nlohmann::json json, std::filesystem::path folder, std::string where);

  const std::string& where() const { return where_; }
  bool has(const std::string& key) const { return json_.contains(key); }
  /// Throws for a key that is not in `known`, offering the nearest.
  void check_keys(const std::vector<std::string>& known) const;

  std::string text(const std::string& key, const std::string& otherwise) const;
  /// A path, relative to the description's folder.
  std::filesystem::path file(const std::string& key) const;
  /// One such path, or a list of them that is not empty.
  std::vector<std::filesystem::path> files(const std::string& key) const;
  std::filesystem::path beside(const std::string& name) const { return folder_ / name; }
  /// An object, empty where there is no such key.
  const nlohmann::json& object(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t otherwise, int64_t least, int64_t most) const;
  /// One number from 1 to `most`, or two: height and width. Empty where there is no such key.
  std::vector<int64_t> sides(const std::string& key, int64_t most) const;
  std::vector<int64_t> integers(const std::string& key, int64_t least, int64_t most) const;
  double number(const std::string& key, double otherwise) const;
  /// One number for each channel, or one for all.
  std::vector<double> per_channel(const std::string& key, double otherwise, size_t channels) const;

  /// "first" and "limit".
  Selection select(int64_t total, const DatasetOptions& options) const;
  /// "input", or the only input of the model.
  const ValueInfo& input(const std::vector<ValueInfo>& inputs) const;

 private:
  [[noreturn]] void wrong(const std::string& key, const std::string& accepted) const;

  std::filesystem::path folder_;
  std::string where_;
  nlohmann::json json_;
};

/// The keys that every kind of description has.
std::vector<std::string> with_common_keys(std::vector<std::string> keys);

/// What each pixel value becomes: (pixel · scale − mean) / std, for each channel in the order the model sees them.
class PixelValues {
 public:
  PixelValues(const Description& description, int64_t channels);
  /// Every `step`-th byte from `in` on.
  void convert(const uint8_t* in, int64_t step, int64_t channel, float* out, int64_t out_step, int64_t count) const;

 private:
  std::vector<std::array<float, 256>> tables_;
};

/// One class for each sample, as the labels of a batch.
Tensor class_tensor(const std::vector<int64_t>& classes, int64_t first, int64_t count);

std::unique_ptr<Dataset> open_images(const Description& description, const std::vector<ValueInfo>& inputs,
                                     const DatasetOptions& options);
std::unique_ptr<Dataset> open_cifar(const Description& description, const std::vector<ValueInfo>& inputs,
                                    const DatasetOptions& options);
std::unique_ptr<Dataset> open_text(const Description& description, const std::vector<ValueInfo>& inputs,
                                   const DatasetOptions& options);
/// Arrays beside inputs that are the same at every run, or carried from one to the next.
std::unique_ptr<Dataset> open_stateful(const Description& description, const std::vector<ValueInfo>& inputs,
                                       const DatasetOptions& options);
std::unique_ptr<Dataset> open_idx(const Description& description, const std::vector<ValueInfo>& inputs,
                                  const DatasetOptions& options);

}  // namespace kaon
