// The clinic on real models: `real_clinic MODEL,MODEL FIRST:LAST` shows the doctor one patient for each disease and
// seed and prints the score; without arguments all models with seed 1.
#include <fmt/format.h>

#include <iostream>

#include "examine.h"
#include "real_patients.h"

int main(int argc, char** argv) {
  using namespace kaon::clinic;
  try {
    const std::string seeds = argc > 1 ? argv[1] : "1";
    const std::vector<std::string> models = argc > 2 ? std::vector<std::string>(argv + 2, argv + argc) : real_models();
    const uint64_t first = std::stoull(seeds);
    const uint64_t last = seeds.find(':') == std::string::npos ? first : std::stoull(seeds.substr(seeds.find(':') + 1));
    Score score;
    for (const std::string& model : models) {
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
