// Any text gives the families of language models with a config.json of these words, or a kaon::Error.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "lm/family.h"

namespace {

/// A checkpoint in which every tensor has one number.
class NoWeights : public kaon::lm::Weights {
 public:
  std::optional<kaon::Shape> shape(const std::string&) const override { return kaon::Shape{1}; }
  kaon::Tensor tensor(const std::string&) const override { return kaon::Tensor::of({1}, std::vector<float>{0}); }
  std::string where(const std::string&) const override { return "fuzz"; }
  int64_t parameters() const override { return 0; }
  int64_t bytes() const override { return 0; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto config = kaon::lm::Config::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& [name, kind] : kaon::lm::families().items()) {
      try {
        const auto family = kind.make(config);
        const NoWeights weights;
        kaon::lm::Builder build(weights, {});
        family->block(build, 0, build.hidden_input(family->facts().width));
      } catch (const kaon::Error&) {
      }
    }
  } catch (const kaon::Error&) {
  }
  return 0;
}
