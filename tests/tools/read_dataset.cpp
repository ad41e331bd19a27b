// read_dataset DATA OUT.npz: each sample as the array "0", "1" … and the labels, for a model with one float32 input of
// any shape. The scripts under tests/oracles compare them with other readers.
#include <fmt/format.h>

#include <cstdio>

#include "base/error.h"
#include "data/dataset.h"
#include "io/npy/npy.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: read_dataset DATA OUT.npz\n");
    return 2;
  }
  try {
    const kaon::ValueInfo input{.name = "x", .type = kaon::DType::Float32};
    const auto dataset = kaon::open_dataset(argv[1], {input});
    kaon::NamedTensors arrays;
    for (int64_t i = 0; i < dataset->size(); ++i) {
      arrays.emplace_back(std::to_string(i), dataset->read(i, 1).inputs.at("x"));
    }
    if (dataset->has_labels()) arrays.emplace_back("labels", dataset->read(0, dataset->size()).labels);
    kaon::write_npz(arrays, argv[2]);
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
