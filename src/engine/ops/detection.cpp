#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

/// Corners with the smaller coordinate first.
struct Box {
  float top, left, bottom, right;

  float area() const { return (bottom - top) * (right - left); }
};

Box read_box(const float* four, bool center) {
  if (center) {
    const float half_width = four[2] / 2, half_height = four[3] / 2;
    return {four[1] - half_height, four[0] - half_width, four[1] + half_height, four[0] + half_width};
  }
  return {std::min(four[0], four[2]), std::min(four[1], four[3]), std::max(four[0], four[2]),
          std::max(four[1], four[3])};
}

bool overlap(const Box& a, const Box& b, float threshold) {
  const float height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  const float width = std::min(a.right, b.right) - std::max(a.left, b.left);
  if (height <= 0 || width <= 0) return false;
  const float both = height * width;
  const float either = a.area() + b.area() - both;
  return either > 0 && both / either > threshold;
}

float scalar_or(const Call& call, size_t input, float otherwise) {
  if (!call.has(input) || call.in(input).numel() == 0) return otherwise;
  return call.in(input).reshape({-1})[0].item().toFloat();
}

void non_max_suppression(Call& call, bool center) {
  const at::Tensor boxes = call.in(0).to(at::kCPU, at::kFloat).contiguous();
  const at::Tensor scores = call.in(1).to(at::kCPU, at::kFloat).contiguous();
  if (boxes.dim() != 3 || scores.dim() != 3 || boxes.size(2) != 4 || boxes.size(0) != scores.size(0) ||
      boxes.size(1) != scores.size(2)) {
    fail(ErrorCode::InvalidInput, "input 0", "boxes {} must be [batch, boxes, 4] and scores {} [batch, classes, boxes]",
         to_string(boxes.sizes()), to_string(scores.sizes()));
  }
  const int64_t most = call.has(2) && call.in(2).numel() > 0 ? call.ints(2)[0] : 0;
  const float iou_threshold = scalar_or(call, 3, 0);
  const float score_threshold = scalar_or(call, 4, -std::numeric_limits<float>::infinity());
  const bool any_score = !call.has(4);
  const int64_t count = boxes.size(1), classes = scores.size(1);
  std::vector<int64_t> selected;
  for (int64_t batch = 0; batch < boxes.size(0); ++batch) {
    const float* batch_boxes = boxes.data_ptr<float>() + batch * count * 4;
    for (int64_t kind = 0; kind < classes; ++kind) {
      const float* score = scores.data_ptr<float>() + (batch * classes + kind) * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; ++i) {
        if (any_score || score[i] > score_threshold) order.push_back(i);
      }
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return score[a] > score[b]; });
      std::vector<Box> kept;
      for (const int64_t i : order) {
        if (std::ssize(kept) >= most) break;
        const Box box = read_box(batch_boxes + i * 4, center);
        const auto covers = [&](const Box& other) { return overlap(box, other, iou_threshold); };
        if (std::any_of(kept.begin(), kept.end(), covers)) continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, kind, i});
      }
    }
  }
  call.out(0, at::tensor(selected, at::kLong).reshape({-1, 3}).to(call.in(0).device()));
}

Kernel make_non_max_suppression(const OpInfo& info) {
  const bool center = info.node().get_int("center_point_box", 0) != 0;
  return [center](Call& call) { non_max_suppression(call, center); };
}

/// Regions [n, width] on the host, for loops over them.
std::vector<std::vector<float>> region_rows(const at::Tensor& rois, int64_t width) {
  if (rois.dim() != 2 || rois.size(1) != width) {
    fail(ErrorCode::InvalidInput, "rois", "their shape {} must be [regions, {}]", to_string(rois.sizes()), width);
  }
  const at::Tensor host = rois.detach().to(at::kCPU, at::kFloat).contiguous();
  const float* data = host.data_ptr<float>();
  std::vector<std::vector<float>> rows;
  for (int64_t i = 0; i < rois.size(0); ++i) rows.emplace_back(data + i * width, data + (i + 1) * width);
  return rows;
}

at::Tensor image_of(const at::Tensor& x, int64_t batch) {
  if (x.dim() != 4 || batch < 0 || batch >= x.size(0) || x.size(2) < 1 || x.size(3) < 1) {
    fail(ErrorCode::InvalidInput, "rois", "a region is of image {} of an input {}", batch, to_string(x.sizes()));
  }
  return x.select(0, batch);
}

at::Tensor stack_or_empty(const std::vector<at::Tensor>& regions, const at::Tensor& x, int64_t height, int64_t width) {
  return regions.empty() ? at::zeros({0, x.size(1), height, width}, x.options()) : at::stack(regions);
}

Kernel make_max_roi_pool(const OpInfo& info) {
  const std::vector<int64_t> pooled = info.node().get_ints("pooled_shape");
  if (pooled.size() != 2 || pooled[0] < 1 || pooled[1] < 1) {
    fail(ErrorCode::InvalidInput, info.node().label(), "'pooled_shape' must hold a height and a width");
  }
  const float scale = info.node().get_float("spatial_scale", 1);
  return [pooled, scale](Call& call) {
    constexpr int64_t kMostBins = int64_t{1} << 22;
    const at::Tensor x = widen(call.in(0));
    std::vector<at::Tensor> regions;
    const std::vector<std::vector<float>> rois = region_rows(call.in(1), 5);
    if (pooled[0] * pooled[1] > kMostBins / std::max<int64_t>(std::ssize(rois), 1)) {
      fail(ErrorCode::InvalidInput, "pooled_shape", "{} bins of {} regions; {} in all are accepted", to_string(pooled),
           rois.size(), kMostBins);
    }
    for (const std::vector<float>& roi : rois) {
      const at::Tensor image = image_of(x, static_cast<int64_t>(roi[0]));
      // First and last element of bin i of the region from `from` to `to` on an axis.
      const auto bin = [&](float from, float to, size_t axis, int64_t i) {
        const auto first = static_cast<int64_t>(std::round(from * scale));
        const auto last = static_cast<int64_t>(std::round(to * scale));
        const float size =
            static_cast<float>(std::max<int64_t>(last - first + 1, 1)) / static_cast<float>(pooled[axis]);
        const int64_t limit = image.size(static_cast<int64_t>(axis) + 1);
        const auto start = static_cast<int64_t>(std::floor(static_cast<float>(i) * size)) + first;
        const auto stop = static_cast<int64_t>(std::ceil(static_cast<float>(i + 1) * size)) + first;
        return std::pair(std::clamp<int64_t>(start, 0, limit), std::clamp<int64_t>(stop, 0, limit));
      };
      std::vector<at::Tensor> bins;
      for (int64_t i = 0; i < pooled[0]; ++i) {
        const auto [top, bottom] = bin(roi[2], roi[4], 0, i);
        for (int64_t j = 0; j < pooled[1]; ++j) {
          const auto [left, right] = bin(roi[1], roi[3], 1, j);
          const bool empty = bottom <= top || right <= left;
          bins.push_back(empty ? at::zeros(image.size(0), x.options())
                               : image.slice(1, top, bottom).slice(2, left, right).amax({1, 2}));
        }
      }
      regions.push_back(at::stack(bins, 1).reshape({image.size(0), pooled[0], pooled[1]}));
    }
    call.out(0, stack_or_empty(regions, x, pooled[0], pooled[1]), call.type(0));
  };
}

struct RoiAlignAttributes {
  int64_t height = 1;
  int64_t width = 1;
  int64_t sampling_ratio = 0;
  float scale = 1;
  bool half_pixel = false;
  bool average = true;
};

/// Samples along one axis: their two neighbours and the weights of these, zero outside the image. All are
/// [regions, bins · per_bin].
struct AxisSamples {
  std::array<at::Tensor, 2> index, weight;

  AxisSamples(int64_t regions, int64_t samples) {
    for (at::Tensor& one : index) one = at::empty({regions, samples}, at::kLong);
    for (at::Tensor& one : weight) one = at::empty({regions, samples}, at::kFloat);
  }

  /// `first`: the bin that the samples begin with.
  void set(int64_t region, float start, float bin, int64_t first, int64_t per_bin, int64_t size) {
    const int64_t count = index[0].size(1);
    auto* const low = index[0].data_ptr<int64_t>() + region * count;
    auto* const high = index[1].data_ptr<int64_t>() + region * count;
    auto* const of_low = weight[0].data_ptr<float>() + region * count;
    auto* const of_high = weight[1].data_ptr<float>() + region * count;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t before = first + i / per_bin, sample = i % per_bin;
      const float at = start + static_cast<float>(before) * bin +
                       (static_cast<float>(sample) + 0.5F) * bin / static_cast<float>(per_bin);
      const bool inside = at >= -1 && at <= static_cast<float>(size);
      const float near = inside ? std::clamp(at, 0.0F, static_cast<float>(size - 1)) : 0;
      low[i] = static_cast<int64_t>(near);
      high[i] = std::min(low[i] + 1, size - 1);
      of_high[i] = near - static_cast<float>(low[i]);
      of_low[i] = inside ? 1 - of_high[i] : 0;
    }
  }
};

/// A region in elements of its image.
struct Region {
  int64_t image;
  float top, left, bin_height, bin_width;

  Region(int64_t image_, const std::vector<float>& roi, const RoiAlignAttributes& attributes) : image(image_) {
    const float shift = attributes.half_pixel ? 0.5F : 0;
    left = roi[0] * attributes.scale - shift;
    top = roi[1] * attributes.scale - shift;
    float width = roi[2] * attributes.scale - shift - left, height = roi[3] * attributes.scale - shift - top;
    if (!attributes.half_pixel) {
      width = std::max(width, 1.0F);
      height = std::max(height, 1.0F);
    }
    bin_height = height / static_cast<float>(attributes.height);
    bin_width = width / static_cast<float>(attributes.width);
  }
};

/// Samples of a bin, down and across.
struct BinSamples {
  int64_t down, across;
  auto operator<=>(const BinSamples&) const = default;

  BinSamples(const Region& region, const RoiAlignAttributes& attributes, const at::Tensor& x) {
    const int64_t most = x.size(2) + x.size(3);
    const auto of = [&](float bin) {
      if (attributes.sampling_ratio > 0) return std::min(attributes.sampling_ratio, most);
      const float wanted = std::ceil(bin);
      return wanted > 0 ? static_cast<int64_t>(std::min(wanted, static_cast<float>(most))) : 0;
    };
    down = of(region.bin_height);
    across = of(region.bin_width);
  }
};

/// Rows of bins.
struct BinRows {
  int64_t first, count;
};

/// [regions, channels, rows, width] of regions whose bins are sampled alike; `pixels` is [channels, all pixels].
at::Tensor align_rows(const at::Tensor& x, const at::Tensor& pixels, std::span<const Region> regions,
                      const BinSamples& bin, const BinRows& part, const RoiAlignAttributes& attributes) {
  const int64_t count = std::ssize(regions), channels = x.size(1);
  AxisSamples rows(count, part.count * bin.down), columns(count, attributes.width * bin.across);
  at::Tensor images = at::empty({count, 1}, at::kLong);
  for (int64_t i = 0; i < count; ++i) {
    const Region& region = regions[static_cast<size_t>(i)];
    images.data_ptr<int64_t>()[i] = region.image;
    rows.set(i, region.top, region.bin_height, part.first, bin.down, x.size(2));
    columns.set(i, region.left, region.bin_width, 0, bin.across, x.size(3));
  }
  at::Tensor sampled;
  for (size_t corner = 0; corner < 4; ++corner) {
    const size_t r = corner / 2, c = corner % 2;
    const at::Tensor line = (images * x.size(2) + rows.index[r]) * x.size(3);
    const at::Tensor pixel = (line.unsqueeze(2) + columns.index[c].unsqueeze(1)).reshape({1, -1}).to(x.device());
    const at::Tensor weight = (rows.weight[r].unsqueeze(2) * columns.weight[c].unsqueeze(1)).reshape({1, -1});
    const at::Tensor weighted = pixels.gather(1, pixel.expand({channels, -1})) * weight.to(x.options());
    // Maximum mode takes the largest of the weighted neighbours, not of the interpolated samples.
    if (!sampled.defined()) {
      sampled = weighted;
    } else {
      sampled = attributes.average ? sampled + weighted : at::maximum(sampled, weighted);
    }
  }
  const at::Tensor apart = sampled.reshape({channels, count, part.count, bin.down, attributes.width, bin.across});
  return (attributes.average ? apart.mean(at::IntArrayRef{3, 5}) : apart.amax({3, 5})).transpose(0, 1);
}

/// [regions, channels, height, width], in pieces that stay in the cache.
at::Tensor align_regions(const at::Tensor& x, const at::Tensor& pixels, std::span<const Region> regions,
                         const BinSamples& bin, const RoiAlignAttributes& attributes) {
  constexpr int64_t kPiece = int64_t{1} << 16;  // samples of all channels
  const int64_t count = std::ssize(regions), channels = x.size(1);
  if (bin.down < 1 || bin.across < 1) {
    return at::zeros({count, channels, attributes.height, attributes.width}, x.options());
  }
  const int64_t row = attributes.width * bin.down * bin.across * std::max<int64_t>(channels, 1);
  const int64_t rows = std::clamp<int64_t>(kPiece / row, 1, attributes.height);
  const int64_t at_once = std::max<int64_t>(kPiece / (row * attributes.height), 1);
  std::vector<at::Tensor> pieces;
  for (int64_t first = 0; first < count; first += at_once) {
    const auto some =
        regions.subspan(static_cast<size_t>(first), static_cast<size_t>(std::min(at_once, count - first)));
    std::vector<at::Tensor> parts;
    for (int64_t top = 0; top < attributes.height; top += rows) {
      parts.push_back(align_rows(x, pixels, some, bin, {top, std::min(rows, attributes.height - top)}, attributes));
    }
    pieces.push_back(parts.size() == 1 ? parts.front() : at::cat(parts, 2));
  }
  return at::cat(pieces);
}

at::Tensor roi_align(const at::Tensor& x, const std::vector<std::vector<float>>& rois,
                     const std::vector<int64_t>& images, const RoiAlignAttributes& attributes) {
  constexpr int64_t kMostSamples = int64_t{1} << 24;  // of a channel: 20,000 regions of 14 x 14 bins of 4
  std::map<BinSamples, std::pair<std::vector<Region>, std::vector<int64_t>>> groups;
  int64_t samples = 0;
  for (size_t i = 0; i < rois.size(); ++i) {
    image_of(x, images[i]);
    const Region region(images[i], rois[i], attributes);
    const BinSamples bin(region, attributes, x);
    samples += element_count({{attributes.height, attributes.width, bin.down, bin.across}});
    if (samples > kMostSamples) {
      fail(ErrorCode::InvalidInput, "rois", "{} regions of {} x {} bins take more than {} samples, the most accepted",
           rois.size(), attributes.height, attributes.width, kMostSamples);
    }
    groups[bin].first.push_back(region);
    groups[bin].second.push_back(static_cast<int64_t>(i));
  }
  require_room({{std::ssize(rois), x.size(1), attributes.height, attributes.width}});
  const at::Tensor pixels = x.transpose(0, 1).reshape({x.size(1), -1});
  std::vector<at::Tensor> parts;
  std::vector<int64_t> places(rois.size());  // of each region among those of all groups
  int64_t next = 0;
  for (const auto& [bin, group] : groups) {
    parts.push_back(align_regions(x, pixels, group.first, bin, attributes));
    for (const int64_t place : group.second) places[static_cast<size_t>(place)] = next++;
  }
  return at::cat(parts).index_select(0, at::tensor(places, at::kLong).to(x.device()));
}

Kernel make_roi_align(const OpInfo& info) {
  const Node& node = info.node();
  const std::string coordinates =
      node.get_string("coordinate_transformation_mode", info.opset() < 16 ? "output_half_pixel" : "half_pixel");
  const std::string mode = node.get_string("mode", "avg");
  if (coordinates != "half_pixel" && coordinates != "output_half_pixel") {
    info.unsupported("coordinate_transformation_mode '" + coordinates + "' is none that ONNX defines");
  }
  if (mode != "avg" && mode != "max") info.unsupported("mode '" + mode + "'; avg and max are known");
  const RoiAlignAttributes attributes{std::max<int64_t>(1, node.get_int("output_height", 1)),
                                      std::max<int64_t>(1, node.get_int("output_width", 1)),
                                      node.get_int("sampling_ratio", 0),
                                      node.get_float("spatial_scale", 1),
                                      coordinates == "half_pixel",
                                      mode == "avg"};
  return [attributes](Call& call) {
    const at::Tensor x = widen(call.in(0));
    const std::vector<std::vector<float>> rows = region_rows(call.in(1), 4);
    const std::vector<int64_t> batches = call.ints(2);
    if (batches.size() != rows.size()) {
      fail(ErrorCode::InvalidInput, "batch_indices", "{} are given for {} regions", batches.size(), rows.size());
    }
    if (rows.empty()) return call.out(0, stack_or_empty({}, x, attributes.height, attributes.width), call.type(0));
    call.out(0, roi_align(x, rows, batches, attributes), call.type(0));
  };
}

}  // namespace

void register_detection(OpRegistry& ops) {
  ops.add("NonMaxSuppression", make_non_max_suppression, data_shape());
  ops.add("MaxRoiPool", make_max_roi_pool, fixed_shape());
  ops.add("RoiAlign", make_roi_align, fixed_shape());
}

}  // namespace kaon
