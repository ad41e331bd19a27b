#include "numerics/quantize.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "numerics/block_scale.h"
#include "numerics/check.h"
#include "numerics/codes.h"
#include "numerics/float_blocks.h"
#include "numerics/row_plan.h"

namespace kaon {

namespace {

constexpr int64_t kStep = Encoder::kStep;
constexpr int64_t kGrain = 64 * kStep;

/// Calls body(index, count, first_tile, offset) for pieces of up to kStep elements of [begin, end) that lie in one row:
/// element index + i belongs to tile first_tile + (offset + i) / plan.tile().
template <class Body>
void for_each_step(const RowPlan& plan, int64_t begin, int64_t end, const Body& body) {
  const int64_t row_size = plan.row_size();
  for (int64_t index = begin; index < end;) {
    const int64_t row = index / row_size;
    const int64_t first_tile = plan.first_tile(row);
    const int64_t row_end = std::min(end, (row + 1) * row_size);
    for (; index < row_end; index += std::min(kStep, row_end - index)) {
      body(index, std::min(kStep, row_end - index), first_tile, index - row * row_size);
    }
  }
}

/// Spreads the tiles' values to one for each element of a step.
template <class T, class Value>
void spread(const RowPlan& plan, int64_t first_tile, int64_t offset, int64_t count, T* out, const Value& value) {
  const int64_t tile_size = plan.tile();
  int64_t tile = offset / tile_size;
  for (int64_t i = 0; i < count; ++tile) {
    const int64_t stop = std::min(count, (tile + 1) * tile_size - offset);
    std::fill(out + i, out + stop, static_cast<T>(value(first_tile + tile)));
    i = stop;
  }
}

/// The tiles' scales and zero points, element by element.
struct StepParams {
  float scale[kStep];
  int32_t zero_point[kStep];
  bool has_zero_point = false;

  void fill(const RowPlan& plan, const QuantParams& params, int64_t first_tile, int64_t offset, int64_t count) {
    has_zero_point = !params.zero_point.empty();
    spread(plan, first_tile, offset, count, scale, [&](int64_t tile) { return params.scale[tile]; });
    if (!has_zero_point) return;
    spread(plan, first_tile, offset, count, zero_point, [&](int64_t tile) { return params.zero_point[tile]; });
  }
  const int32_t* zero_points() const { return has_zero_point ? zero_point : nullptr; }
};

/// Quantizes to a Block format: the absmax of every block, the scales, the codes.
class BlockQuantizer {
 public:
  BlockQuantizer(FloatView in, const Format& format, const Tiling& blocks, const QuantizeOptions& options)
      : in_(in),
        format_(format),
        element_(kaon::format(format.element)),
        options_(saturating(options)),
        plan_(blocks),
        scaling_(format, options.scale_mode) {}

  BlockTensor run(std::span<const int64_t> shape, int64_t axis, float global_amax) const {
    BlockTensor tensor{{shape.begin(), shape.end()}, axis, {}, {}, 1};
    tensor.codes.resize(static_cast<size_t>(in_.size * element_.code_bytes()));
    tensor.scales.resize(static_cast<size_t>(plan_.tile_count()));
    if (in_.size == 0) return tensor;
    const bool known = !format_.global_scale || global_amax >= 0;
    if (known && format_.global_scale) tensor.global_scale = scaling_.global_scale(global_amax);
    if (known && !format_.widen_on_overflow && steps_hold_blocks()) {
      encode_at_once(tensor);
      return tensor;
    }
    const std::vector<float> amax = block_amax();
    if (!known) tensor.global_scale = scaling_.global_scale(*std::max_element(amax.begin(), amax.end()));
    for (size_t i = 0; i < amax.size(); ++i) {
      tensor.scales[i] = static_cast<std::byte>(scaling_.code(amax[i], tensor.global_scale));
    }
    if (format_.widen_on_overflow) widen(tensor);
    encode(tensor);
    return tensor;
  }

 private:
  /// Blocks always saturate, as OCP MX asks.
  static QuantizeOptions saturating(QuantizeOptions options) {
    options.saturate = true;
    return options;
  }

  /// Pieces that share no block, so that threads may write what belongs to a block.
  template <class Body>
  void for_each_block_step(const Body& body) const {
    const int64_t run = plan_.independent_run();
    parallel_for(0, (in_.size + run - 1) / run, std::max<int64_t>(1, kGrain / run), [&](int64_t begin, int64_t end) {
      for_each_step(plan_, begin * run, std::min(end * run, in_.size), body);
    });
  }

  /// Whether every block lies in one step.
  bool steps_hold_blocks() const {
    const int64_t run = plan_.independent_run();
    return kStep % run == 0 && plan_.row_size() % run == 0;
  }

  /// Scales and codes of a step while its numbers are in the cache.
  void encode_at_once(BlockTensor& tensor) const {
    const Encoder encoder(element_, options_);
    const int64_t code_bytes = element_.code_bytes(), tile = plan_.tile();
    for_each_block_step([&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      float scratch[kStep];
      float amax[kStep];
      std::fill_n(amax, (count + tile - 1) / tile, 0.0f);
      const float* x = load_floats(in_, index, count, scratch);
      raise_amax(x, count, tile, 0, amax);
      const int64_t first = first_tile + offset / tile;
      for (int64_t i = 0; i * tile < count; ++i) {
        tensor.scales[first + i] = static_cast<std::byte>(scaling_.code(amax[i], tensor.global_scale));
      }
      const StepScales scales(*this, tensor, first_tile, offset, count);
      encoder.encode(x, scales.params, index, count, tensor.codes.data() + index * code_bytes);
    });
  }

  std::vector<float> block_amax() const {
    std::vector<float> amax(static_cast<size_t>(plan_.tile_count()), 0.0f);
    for_each_block_step([&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      float scratch[kStep];
      const float* x = load_floats(in_, index, count, scratch);
      raise_amax(x, count, plan_.tile(), offset % plan_.tile(), amax.data() + first_tile + offset / plan_.tile());
    });
    return amax;
  }

  /// Adds one to the exponent of each block with an element that rounds past the lowest or highest code.
  void widen(BlockTensor& tensor) const {
    // A wider integer shows what the element's own format would have saturated.
    Format wide = element_;
    wide.bits = 16;
    const Encoder encoder(wide, options_);
    std::vector<std::byte> widened = tensor.scales;
    for_each_block_step([&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      float scratch[kStep];
      int16_t codes[kStep];
      const float* x = load_floats(in_, index, count, scratch);
      const StepScales scales(*this, tensor, first_tile, offset, count);
      encoder.encode(x, scales.params, index, count, reinterpret_cast<std::byte*>(codes));
      for (int64_t i = 0; i < count; ++i) {
        if (codes[i] >= element_.integer_min() && codes[i] <= element_.integer_max()) continue;
        const float scale = scales.scale[(scales.params.offset + i) / plan_.tile()];
        if (!std::isfinite(divided(x[i], tensor.global_scale, scale))) continue;
        const int64_t tile = first_tile + (offset + i) / plan_.tile();
        widened[tile] = static_cast<std::byte>(static_cast<uint8_t>(tensor.scales[tile]) + 1);
      }
    });
    tensor.scales = std::move(widened);
  }

  void encode(BlockTensor& tensor) const {
    const Encoder encoder(element_, options_);
    const int64_t code_bytes = element_.code_bytes();
    parallel_for(0, in_.size, kGrain, [&](int64_t begin, int64_t end) {
      for_each_step(plan_, begin, end, [&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
        float scratch[kStep];
        const float* x = load_floats(in_, index, count, scratch);
        const StepScales scales(*this, tensor, first_tile, offset, count);
        encoder.encode(x, scales.params, index, count, tensor.codes.data() + index * code_bytes);
      });
    });
  }

  /// The scales of the blocks that a step meets.
  struct StepScales {
    StepScales(const BlockQuantizer& quantizer, const BlockTensor& tensor, int64_t first_tile, int64_t offset,
               int64_t count)
        : params{scale, nullptr, quantizer.plan_.tile(), offset % quantizer.plan_.tile(), tensor.global_scale} {
      const int64_t first = offset / params.tile, last = (offset + count - 1) / params.tile;
      for (int64_t tile = first; tile <= last; ++tile) {
        scale[tile - first] = quantizer.scaling_.scale(static_cast<uint8_t>(tensor.scales[first_tile + tile]));
      }
    }
    StepScales(const StepScales&) = delete;
    StepScales& operator=(const StepScales&) = delete;

    float scale[kStep];
    TileParams params;
  };

  FloatView in_;
  const Format& format_;
  const Format& element_;
  QuantizeOptions options_;
  RowPlan plan_;
  BlockScaling scaling_;
};

}  // namespace

void quantize(FloatView in, std::span<std::byte> codes, const Format& format, const QuantParams& params,
              const QuantizeOptions& options) {
  check_params(format, params);
  check_view(in, "in");
  check_size(in.size, params.tiling.element_count(), "in");
  check_size(std::ssize(codes), in.size * format.code_bytes(), "codes");
  const RowPlan plan(params.tiling);
  const Encoder encoder(format, options);
  parallel_for(0, in.size, kGrain, [&](int64_t begin, int64_t end) {
    float scratch[kStep];
    for_each_step(plan, begin, end, [&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      const float* x = load_floats(in, index, count, scratch);
      const int64_t tile = plan.tile(), first = first_tile + offset / tile;
      const TileParams of_step{params.scale.data() + first,
                               params.zero_point.empty() ? nullptr : params.zero_point.data() + first, tile,
                               offset % tile};
      encoder.encode(x, of_step, index, count, codes.data() + index * format.code_bytes());
    });
  });
}

void dequantize(std::span<const std::byte> codes, std::span<float> out, const Format& format,
                const QuantParams& params) {
  check_params(format, params);
  check_size(std::ssize(out), params.tiling.element_count(), "out");
  check_size(std::ssize(codes), std::ssize(out) * format.code_bytes(), "codes");
  const RowPlan plan(params.tiling);
  const Decoder decoder(format);
  parallel_for(0, std::ssize(out), kGrain, [&](int64_t begin, int64_t end) {
    StepParams step;
    for_each_step(plan, begin, end, [&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      step.fill(plan, params, first_tile, offset, count);
      float* values = out.data() + index;
      decoder.decode(codes.data() + index * format.code_bytes(), step.zero_points(), count, values);
      for (int64_t i = 0; i < count; ++i) values[i] *= step.scale[i];
    });
  });
}

BlockTensor quantize_blocks(FloatView in, const Format& format, std::span<const int64_t> shape, int64_t axis,
                            const QuantizeOptions& options, float global_amax) {
  const Tiling blocks = check_blocks(format, shape, axis, in.size, global_amax);
  check_view(in, "in");
  const auto along = static_cast<int64_t>(check_axis(axis, shape));
  return BlockQuantizer(in, format, blocks, options).run(shape, along, global_amax);
}

void dequantize_blocks(const BlockTensor& tensor, std::span<float> out, const Format& format) {
  const RowPlan plan(check_block_tensor(tensor, format));
  const Format& element = kaon::format(format.element);
  check_size(std::ssize(out), plan.element_count(), "out");
  const Decoder decoder(element);
  const BlockScaling scaling(format, BlockScaleMode::Floor);
  parallel_for(0, std::ssize(out), kGrain, [&](int64_t begin, int64_t end) {
    float scale[kStep];
    for_each_step(plan, begin, end, [&](int64_t index, int64_t count, int64_t first_tile, int64_t offset) {
      spread(plan, first_tile, offset, count, scale,
             [&](int64_t tile) { return scaling.scale(static_cast<uint8_t>(tensor.scales[tile])); });
      float* values = out.data() + index;
      decoder.decode(tensor.codes.data() + index * element.code_bytes(), nullptr, count, values);
      for (int64_t i = 0; i < count; ++i) values[i] = values[i] * scale[i] / tensor.global_scale;
    });
  });
}

}  // namespace kaon
