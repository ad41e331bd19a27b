// The whole clinic: `real_clinic FIRST:LAST MODEL MODEL` shows the doctor one patient for each disease and seed and
// prints the score; without arguments all models with seed 1. "small" is the network of the quick clinic.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "examine.h"
#include "real_patients.h"

int main(int argc, char** argv) {
  using namespace kaon::clinic;
  try {
    const std::string seeds = argc > 1 ? argv[1] : "1";
    std::vector<std::string> models(argv + std::min(argc, 2), argv + argc);
    if (models.empty()) {
      models = real_models();
      models.insert(models.begin(), "small");
    }
    const uint64_t first = std::stoull(seeds);
    const uint64_t last = seeds.find(':') == std::string::npos ? first : std::stoull(seeds.substr(seeds.find(':') + 1));
    Score score;
    for (const std::string& model : models) {
      if (model == "small") {
        for (const std::string& disease : diseases()) {
          for (uint64_t seed = first; seed <= last; ++seed) examine(make_patient(disease, seed), score);
        }
        continue;
      }
      if (!std::filesystem::exists(file_of(model))) {
        std::cout << "not run: no " << model << " beside the checkout\n";
        continue;
      }
      for (const std::string& disease : diseases_of(model)) {
        for (uint64_t seed = first; seed <= last; ++seed) examine(make_real_patient(model, disease, seed), score);
      }
    }
    std::cout << score.in_words() << '\n';
    return score.good() ? 0 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
