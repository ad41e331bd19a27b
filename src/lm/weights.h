#pragma once
#include <memory>
#include <optional>
#include <string>

#include "io/gguf/gguf.h"
#include "io/safetensors/checkpoint.h"
#include "numerics/tensor_spec.h"

namespace kaon::lm {

/// How a layer of a quantized checkpoint quantizes what it reads.
struct StoredInput {
  TensorSpec spec;
  float scale = 0;  ///< 0: the parameters follow from the data at every run
  int32_t zero_point = 0;
};

/// The tensors of a language model under the names they have on the hub.
class Weights {
 public:
  virtual ~Weights() = default;
  /// Nothing where there is no such tensor.
  virtual std::optional<Shape> shape(const std::string& name) const = 0;
  /// As stored where that is a float type (mapped), else float32. `name` must be there.
  virtual Tensor tensor(const std::string& name) const = 0;
  /// How the layer `module` quantizes its input; nothing where it does not.
  virtual std::optional<StoredInput> input(const std::string& module) const;
  /// The file it lies in, or would lie in.
  virtual std::string where(const std::string& name) const = 0;
  /// Elements and stored bytes of all tensors.
  virtual int64_t parameters() const = 0;
  virtual int64_t bytes() const = 0;
};

std::unique_ptr<Weights> folder_weights(const std::filesystem::path& folder);

/// The same without the part that a checkpoint of the bare network leaves out: "model.", "transformer.". Names that
/// are not there are looked for without it.
std::unique_ptr<Weights> without_prefix(std::unique_ptr<Weights> weights, std::string prefix);

}  // namespace kaon::lm
