// copy_file IN.onnx OUT.onnx [LIMIT]     reads and writes a model; past LIMIT bytes its weights become external data
// copy_file IN.npy OUT.npy               the same for arrays
// copy_file IN.npz OUT.npz [deflate]
// copy_file IN.gguf OUT.npz              its tensors, dequantized; bfloat16 as float32
// The scripts under tests/oracles compare the two files.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/npy/npy.h"
#include "io/onnx/onnx.h"

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    fmt::print(stderr, "usage: copy_file IN OUT [LIMIT | deflate]\n");
    return 2;
  }
  const std::filesystem::path in(argv[1]), out(argv[2]);
  const std::string word = argc == 4 ? argv[3] : "";
  try {
    if (in.extension() == ".onnx") {
      kaon::write_onnx(kaon::read_onnx(in), out, word.empty() ? kaon::kInlineLimit : std::stoll(word));
    } else if (in.extension() == ".npz") {
      kaon::write_npz(kaon::read_npz(in), out,
                      word == "deflate" ? kaon::NpzCompression::Deflate : kaon::NpzCompression::None);
    } else if (in.extension() == ".gguf") {
      const kaon::GgufFile file = kaon::GgufFile::read(in);
      kaon::NamedTensors arrays;
      for (const kaon::GgufTensor& row : file.tensors()) {
        const kaon::Tensor tensor = file.tensor(row);
        const bool brain = tensor.type() == kaon::DType::BFloat16;
        arrays.emplace_back(row.name, brain ? kaon::Tensor::of<float>(tensor.shape(), tensor.to_float()) : tensor);
      }
      kaon::write_npz(arrays, out);
    } else {
      kaon::write_npy(kaon::read_npy(in), out);
    }
  } catch (const kaon::Error& error) {
    fmt::print(stderr, "{}: {}\n", kaon::to_string(error.code()), error.what());
    return 1;
  }
  return 0;
}
