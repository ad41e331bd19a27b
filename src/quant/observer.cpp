#include "quant/observer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/parallel.h"
#include "numerics/check.h"
#include "numerics/float_blocks.h"
#include "numerics/row_plan.h"

namespace kaon {

namespace {

const ObserverKind& kind_of(const ObserverConfig& config, const std::string& where) {
  if (const ObserverKind* kind = observers().find(config.name)) return *kind;
  fail(ErrorCode::InvalidConfig, where, "unknown observer '{}'; known are {}", config.name,
       fmt::join(observers().names(), ", "));
}

OptionValues options_of(const ObserverKind& kind, const ObserverConfig& config, const std::string& where) {
  return checked_options(kind.options, config.options, "observer " + config.name, where);
}

/// The elements of every tile side by side: tile t has [first[t], first[t + 1]) of `values`.
struct Gathered {
  std::vector<float> values;
  std::vector<int64_t> first;
};

/// Calls body(tile, first element, count) for every run of neighbours that share a tile.
template <class Body>
void for_each_run(const RowPlan& plan, const Body& body) {
  for (int64_t row = 0; row < plan.rows(); ++row) {
    const int64_t first_tile = plan.first_tile(row);
    for (int64_t t = 0; t < plan.tiles_per_row(); ++t) {
      const int64_t begin = t * plan.tile();
      body(first_tile + t, row * plan.row_size() + begin, std::min(plan.tile(), plan.row_size() - begin));
    }
  }
}

Gathered gather_tiles(FloatView in, const Tiling& tiling) {
  const RowPlan plan(tiling);
  const int64_t tiles = tiling.tile_count();
  Gathered result;
  result.values.resize(static_cast<size_t>(in.size));
  result.first.assign(static_cast<size_t>(tiles + 1), 0);
  if (in.size == 0) return result;
  for_each_run(plan,
               [&](int64_t tile, int64_t, int64_t count) { result.first[static_cast<size_t>(tile + 1)] += count; });
  std::partial_sum(result.first.begin(), result.first.end(), result.first.begin());
  std::vector<int64_t> next(result.first.begin(), result.first.end() - 1);
  float scratch[kBlock];
  for_each_run(plan, [&](int64_t tile, int64_t begin, int64_t count) {
    int64_t& to = next[static_cast<size_t>(tile)];
    for (int64_t i = 0; i < count; i += kBlock) {
      const int64_t part = std::min(kBlock, count - i);
      std::copy_n(load_floats(in, begin + i, part, scratch), part, result.values.data() + to);
      to += part;
    }
  });
  return result;
}

/// Few values need few bins, and millions of small tiles could not afford more.
double bins_for(int64_t count, double bins) {
  constexpr double kLeast = 1024;
  constexpr double kEach = 8;
  return std::min(bins, std::max(kLeast, kEach * static_cast<double>(count)));
}

}  // namespace

ScaleZero Observer::scale() const {
  const Format& f = format(spec_.format);
  if (is_cast(f)) return {};
  return choose_scale(range(), f, spec_.symmetric ? Symmetry::Symmetric : Symmetry::Asymmetric, spec_.scale_type);
}

const Registry<ObserverKind>& observers() {
  static const Registry<ObserverKind> kinds = [] {
    Registry<ObserverKind> all("observer");
    register_all_observers(all);
    return all;
  }();
  return kinds;
}

std::unique_ptr<Observer> make_observer(const ObserverConfig& config, const TensorSpec& spec,
                                        const std::string& where) {
  const ObserverKind& kind = kind_of(config, where);
  return kind.make(spec, options_of(kind, config, where));
}

QuantParams observe_params(FloatView in, std::span<const int64_t> shape, const TensorSpec& spec,
                           const ObserverConfig& observer, const std::string& where) {
  const ObserverKind& kind = kind_of(observer, where);
  const OptionValues options = options_of(kind, observer, where);
  if (has_own_scales(spec)) return {};
  if (is_cast(format(spec.format))) return choose_params(in, shape, spec);
  if (kind.params) return kind.params(in, shape, spec);

  QuantParams params{tiling_of(spec, shape), {}, {}};
  check_view(in, "in");
  check_size(in.size, params.tiling.element_count(), "in");
  const int64_t tile_count = params.tiling.tile_count();
  const Gathered tiles = gather_tiles(in, params.tiling);
  params.scale.resize(static_cast<size_t>(tile_count));
  params.zero_point.resize(params.scale.size());
  const auto work = [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const auto i = static_cast<size_t>(t);
      const std::span<const float> values(tiles.values.data() + tiles.first[i],
                                          tiles.values.data() + tiles.first[i + 1]);
      OptionValues own = options;
      if (const auto bins = own.find("bins"); bins != own.end())
        bins->second = bins_for(std::ssize(values), bins->second);
      const auto learned = kind.make(spec, own);
      learned->update(values);
      learned->end_batch();
      const ScaleZero chosen = learned->scale();
      params.scale[i] = chosen.scale;
      params.zero_point[i] = chosen.zero_point;
    }
  };
  // A single tile lets the observer itself use the threads.
  if (tile_count == 1) {
    work(0, 1);
  } else {
    parallel_for(0, tile_count, 1, work);
  }
  if (std::ranges::all_of(params.zero_point, [](int32_t zero) { return zero == 0; })) params.zero_point.clear();
  return params;
}

}  // namespace kaon
