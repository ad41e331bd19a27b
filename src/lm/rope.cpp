#include "lm/rope.h"

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace kaon::lm {

namespace {

constexpr int64_t kMostPositions = int64_t{1} << 30;

std::vector<float> plain_frequencies(double theta, int64_t width) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < width; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(width);
    frequencies.push_back(1.0F / static_cast<float>(std::pow(theta, static_cast<double>(exponent))));
  }
  return frequencies;
}

/// Low frequencies are divided by a factor, high ones stay, those between are mixed.
void scale_llama3(const Config& scaling, const Config& config, std::vector<float>& frequencies) {
  const auto factor = static_cast<float>(scaling.number({"factor"}));
  const auto low = static_cast<float>(scaling.number({"low_freq_factor"}));
  const auto high = static_cast<float>(scaling.number({"high_freq_factor"}));
  const int64_t trained = scaling.size({"original_max_position_embeddings"}, kMostPositions,
                                       config.size({"max_position_embeddings"}, kMostPositions, 8192));
  if (factor <= 0 || low <= 0 || high <= low) {
    scaling.wrong("high_freq_factor", "above low_freq_factor, and both and factor above 0, is needed");
  }
  const auto context = static_cast<float>(trained);
  for (float& frequency : frequencies) {
    const float length = 2 * std::numbers::pi_v<float> / frequency;
    if (length > context / low) {
      frequency /= factor;
    } else if (length >= context / high) {
      const float smooth = (context / length - low) / (high - low);
      frequency = (1 - smooth) * frequency / factor + smooth * frequency;
    }
  }
}

std::vector<float> divided(const std::vector<float>& frequencies, const Config& scaling, std::string_view key) {
  const std::vector<double> factors = scaling.numbers({key});
  if (factors.size() != frequencies.size()) {
    scaling.wrong(key, fmt::format("{} numbers are needed", frequencies.size()));
  }
  std::vector<float> result;
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!(factors[i] > 0)) scaling.wrong(key, "numbers above 0 are needed");
    // 1 / (factor · theta^…): the reciprocal of what was divided comes first.
    result.push_back(1.0F / (static_cast<float>(factors[i]) * (1.0F / frequencies[i])));
  }
  return result;
}

void scale_long(const Config& scaling, const Config& config, Rope& rope) {
  const int64_t most = config.size({"max_position_embeddings"}, kMostPositions);
  const int64_t trained = scaling.has({"original_max_position_embeddings"})
                              ? scaling.size({"original_max_position_embeddings"}, kMostPositions)
                              : config.size({"original_max_position_embeddings"}, kMostPositions, most);
  const std::vector<float> plain = rope.frequencies;
  rope.frequencies = divided(plain, scaling, "short_factor");
  rope.long_frequencies = divided(plain, scaling, "long_factor");
  rope.long_from = trained;
  const double factor =
      trained == most ? scaling.number({"factor"}, 1) : static_cast<double>(most) / static_cast<double>(trained);
  const double usual =
      factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(std::max<int64_t>(trained, 2))));
  rope.scaling = static_cast<float>(scaling.number({"attention_factor"}, usual));
}

}  // namespace

Rope read_rope(const Config& config, int64_t head_width, double default_theta) {
  const bool is_new = config.has({"rope_parameters"});
  const Config scaling = is_new ? config.inside({"rope_parameters"}) : config.inside({"rope_scaling"});
  const double theta = scaling.number({"rope_theta"}, config.number({"rope_theta"}, default_theta));
  if (!(theta > 0)) config.wrong("rope_theta", "a number above 0 is needed");
  const double part = scaling.number({"partial_rotary_factor"}, config.number({"partial_rotary_factor"}, 1));
  if (!(part > 0) || part > 1) config.wrong("partial_rotary_factor", "a number above 0 and up to 1 is needed");
  Rope rope;
  rope.width = static_cast<int64_t>(static_cast<double>(head_width) * part);
  if (rope.width < 2 || rope.width % 2 != 0) {
    fail(ErrorCode::InvalidConfig, config.where(), "{} elements of a head cannot be turned in pairs", rope.width);
  }
  rope.frequencies = plain_frequencies(theta, rope.width);
  const std::string type = scaling.text({"rope_type", "type"}, "default");
  if (type == "linear") {
    const auto factor = static_cast<float>(scaling.number({"factor"}));
    if (!(factor > 0)) scaling.wrong("factor", "a number above 0 is needed");
    for (float& frequency : rope.frequencies) frequency /= factor;
  } else if (type == "llama3") {
    scale_llama3(scaling, config, rope.frequencies);
  } else if (type == "longrope" || type == "su") {
    scale_long(scaling, config, rope);
  } else if (type != "default") {
    fail(ErrorCode::Unsupported, scaling.where(),
         "'rope_type' is '{}'; default, linear, llama3 and longrope can be computed", type);
  }
  return rope;
}

}  // namespace kaon::lm
