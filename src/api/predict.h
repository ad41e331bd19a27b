#pragma once
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace kaon {

struct PredictCall {
  std::filesystem::path model;
  std::vector<std::filesystem::path> images;
  std::filesystem::path with;     ///< a second model to ask, or ""
  std::filesystem::path classes;  ///< a file with one name a line; else what the model's metadata say, else numbers
};

struct Guess {
  std::string name;
  double probability = 0;
};

struct Prediction {
  std::string image;
  std::vector<Guess> guesses;       ///< the likeliest first
  std::vector<Guess> with_guesses;  ///< of the second model; empty without one
};

/// Classifies pictures: each is brought to the size and channels of the model's input and to values from 0 to 1.
std::vector<Prediction> predict(const PredictCall& call);

nlohmann::ordered_json to_json(const std::vector<Prediction>& predictions);

}  // namespace kaon
