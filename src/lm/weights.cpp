#include "lm/weights.h"

namespace kaon::lm {

namespace {

class FolderWeights : public Weights {
 public:
  explicit FolderWeights(const std::filesystem::path& folder) : folder_(folder), tensors_(read_checkpoint(folder)) {}

  std::optional<Shape> shape(const std::string& name) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return std::nullopt;
    return it->second.tensor.shape();
  }
  Tensor tensor(const std::string& name) const override { return tensors_.at(name).tensor; }
  std::string where(const std::string& name) const override {
    const auto it = tensors_.find(name);
    return it == tensors_.end() ? folder_.string() : it->second.file.string();
  }
  int64_t parameters() const override {
    int64_t sum = 0;
    for (const auto& [name, at] : tensors_) sum += at.tensor.size();
    return sum;
  }
  int64_t bytes() const override {
    int64_t sum = 0;
    for (const auto& [name, at] : tensors_) sum += at.tensor.byte_size();
    return sum;
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, CheckpointTensor> tensors_;
};

class WithoutPrefix : public Weights {
 public:
  WithoutPrefix(std::unique_ptr<Weights> weights, std::string prefix)
      : weights_(std::move(weights)), prefix_(std::move(prefix)) {}

  std::optional<Shape> shape(const std::string& name) const override { return weights_->shape(stored(name)); }
  Tensor tensor(const std::string& name) const override { return weights_->tensor(stored(name)); }
  std::optional<StoredInput> input(const std::string& module) const override {
    constexpr std::string_view kWeight = ".weight";
    const std::string weight = stored(module + std::string(kWeight));
    return weights_->input(weight.substr(0, weight.size() - kWeight.size()));
  }
  std::string where(const std::string& name) const override { return weights_->where(stored(name)); }
  int64_t parameters() const override { return weights_->parameters(); }
  int64_t bytes() const override { return weights_->bytes(); }

 private:
  std::string stored(const std::string& name) const {
    const bool bare = name.starts_with(prefix_) && !weights_->shape(name);
    return bare ? name.substr(prefix_.size()) : name;
  }

  std::unique_ptr<Weights> weights_;
  std::string prefix_;
};

}  // namespace

std::optional<StoredInput> Weights::input(const std::string&) const { return std::nullopt; }

std::unique_ptr<Weights> folder_weights(const std::filesystem::path& folder) {
  return std::make_unique<FolderWeights>(folder);
}

std::unique_ptr<Weights> without_prefix(std::unique_ptr<Weights> weights, std::string prefix) {
  return std::make_unique<WithoutPrefix>(std::move(weights), std::move(prefix));
}

}  // namespace kaon::lm
