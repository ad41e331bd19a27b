#include "api/predict.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/image.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"

namespace kaon {
namespace {

constexpr size_t kGuesses = 3;
constexpr const char* kClassesKey = "classes";

std::vector<std::string> lines_of(std::istream& stream, char end) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line, end);) {
    if (!line.empty()) lines.push_back(line);
  }
  return lines;
}

/// An image classifier and the names of its classes.
class Classifier {
 public:
  Classifier(const std::filesystem::path& path, const std::filesystem::path& classes)
      : path_(path), engine_(read_onnx(path)) {
    const std::vector<ValueInfo> inputs = engine_.model().graph.required_inputs();
    const bool image =
        inputs.size() == 1 && inputs[0].type == DType::Float32 && inputs[0].shape && inputs[0].shape->size() == 4;
    const auto dim = [&](size_t i) { return (*inputs[0].shape)[i].value.value_or(0); };
    if (!image || (dim(1) != 1 && dim(1) != 3) || dim(2) < 1 || dim(3) < 1) {
      fail(ErrorCode::InvalidInput, path.string(),
           "takes no image: its one input must be float32 [N, 1 or 3, height, width]");
    }
    input_ = inputs[0].name;
    channels_ = dim(1);
    height_ = dim(2);
    width_ = dim(3);
    if (!classes.empty()) {
      std::ifstream file(classes);
      if (!file) fail(ErrorCode::Io, classes.string(), "cannot be read");
      names_ = lines_of(file, '\n');
    } else {
      for (const auto& [key, value] : engine_.model().metadata) {
        std::istringstream stream(value);
        if (key == kClassesKey) names_ = lines_of(stream, ',');
      }
    }
  }

  std::vector<Guess> ask(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    const Image image = decode_image(file->bytes(), channels_, path.string());
    const Image fitted = resize_image(image, width_, height_, {0, 0, width_, height_});
    std::vector<float> values(fitted.pixels.size());
    const int64_t area = width_ * height_;
    for (int64_t i = 0; i < area; ++i) {
      for (int64_t c = 0; c < channels_; ++c) {
        values[static_cast<size_t>(c * area + i)] =
            static_cast<float>(fitted.pixels[static_cast<size_t>(i * channels_ + c)]) / 255.0F;
      }
    }
    const std::vector<Tensor> outputs =
        engine_.run({{input_, Tensor::of<float>({1, channels_, height_, width_}, values)}});
    return best(outputs.at(0).to_float());
  }

 private:
  std::vector<Guess> best(const std::vector<float>& logits) const {
    if (logits.empty()) fail(ErrorCode::InvalidInput, path_.string(), "its first output is empty; it guesses nothing");
    if (!names_.empty() && names_.size() != logits.size()) {
      fail(ErrorCode::InvalidInput, path_.string(), "gives {} numbers for {} classes", logits.size(), names_.size());
    }
    const float top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - top));
    std::vector<size_t> order(logits.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
    order.resize(std::min(order.size(), kGuesses));
    std::vector<Guess> guesses;
    for (const size_t i : order) {
      guesses.push_back(
          {names_.empty() ? std::to_string(i) : names_[i], std::exp(static_cast<double>(logits[i] - top)) / sum});
    }
    return guesses;
  }

  std::filesystem::path path_;
  Engine engine_;
  std::string input_;
  int64_t channels_ = 1;
  int64_t height_ = 0;
  int64_t width_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<Prediction> predict(const PredictCall& call) {
  Classifier model(call.model, call.classes);
  std::optional<Classifier> with;
  if (!call.with.empty()) with.emplace(call.with, call.classes);
  std::vector<Prediction> predictions;
  for (const std::filesystem::path& image : call.images) {
    Prediction prediction;
    prediction.image = image.string();
    prediction.guesses = model.ask(image);
    if (with) prediction.with_guesses = with->ask(image);
    predictions.push_back(std::move(prediction));
  }
  return predictions;
}

nlohmann::ordered_json to_json(const std::vector<Prediction>& predictions) {
  const auto list = [](const std::vector<Guess>& guesses) {
    auto rows = nlohmann::ordered_json::array();
    for (const Guess& guess : guesses) rows.push_back({{"class", guess.name}, {"probability", guess.probability}});
    return rows;
  };
  auto rows = nlohmann::ordered_json::array();
  for (const Prediction& prediction : predictions) {
    nlohmann::ordered_json row{{"image", prediction.image}, {"guesses", list(prediction.guesses)}};
    if (!prediction.with_guesses.empty()) row["with"] = list(prediction.with_guesses);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace kaon
