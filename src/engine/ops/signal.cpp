#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

/// A trailing axis of length 2 holds real and imaginary parts, of length 1 real numbers alone.
/// In double precision: what cancels should leave nothing behind.
at::Tensor to_signal(const at::Tensor& input) {
  const at::Tensor x = input.to(at::kDouble);
  const int64_t parts = x.dim() == 0 ? 0 : x.size(-1);
  if (x.dim() < 2 || (parts != 1 && parts != 2)) {
    fail(ErrorCode::InvalidInput, "input 0", "a signal has at least two axes, and the last is 1 (real) or 2 (complex)");
  }
  return parts == 1 ? x.select(-1, 0) : at::complex(x.select(-1, 0), x.select(-1, 1));
}

at::Tensor transform(const at::Tensor& signal, int64_t length, int64_t axis, bool onesided) {
  if (length < 1) fail(ErrorCode::InvalidInput, "dft_length", "{} is no length of a transform", length);
  const at::Tensor spectrum = at::fft_fft(signal, length, axis);
  return at::view_as_real(onesided ? spectrum.narrow(axis, 0, length / 2 + 1) : spectrum).contiguous();
}

at::Tensor inverse_transform(const at::Tensor& signal, int64_t length, int64_t axis, bool onesided) {
  if (onesided) return at::fft_irfft(signal, length, axis).unsqueeze(-1);
  return at::view_as_real(at::fft_ifft(signal, length, axis)).contiguous();
}

Kernel make_dft(const OpInfo& info) {
  const bool inverse = info.node().get_int("inverse", 0) != 0;
  const bool onesided = info.node().get_int("onesided", 0) != 0;
  const bool axis_input = info.opset() >= 20;
  const int64_t given = info.node().get_int("axis", axis_input ? -2 : 1);
  return [=](Call& call) {
    const at::Tensor signal = to_signal(call.in(0));
    const int64_t axis = wrap_axis(axis_input && call.has(2) ? call.in(2).item<int64_t>() : given, call.in(0).dim());
    if (axis == signal.dim()) fail(ErrorCode::InvalidInput, "axis", "the last axis holds the complex parts");
    int64_t length = inverse && onesided ? 2 * (signal.size(axis) - 1) : signal.size(axis);
    if (call.has(1)) length = call.in(1).item<int64_t>();
    call.out(0, inverse ? inverse_transform(signal, length, axis, onesided) : transform(signal, length, axis, onesided),
             call.type(0));
  };
}

Kernel make_stft(const OpInfo& info) {
  const bool onesided = info.node().get_int("onesided", 1) != 0;
  return [onesided](Call& call) {
    const at::Tensor signal = to_signal(call.in(0));
    const int64_t step = call.in(1).item<int64_t>();
    const int64_t window = call.has(2) ? call.in(2).numel() : -1;
    const int64_t length = call.has(3) ? call.in(3).item<int64_t>() : call.has(2) ? window : signal.size(1);
    if (step < 1 || length < 1 || length > signal.size(1) || window > length) {
      fail(ErrorCode::InvalidInput, "frame_length",
           "frames of {} every {} with a window of {} do not fit a signal of {}", length, step, window, signal.size(1));
    }
    at::Tensor frames = signal.unfold(1, length, step);
    if (call.has(2)) frames = frames.narrow(2, 0, window) * call.in(2).to(at::kDouble);
    call.out(0, transform(frames, length, 2, onesided), call.type(0));
  };
}

/// A sum of cosines: terms[0] - terms[1] cos(x) + terms[2] cos(2x).
KernelMaker cosine_window(std::array<double, 3> terms) {
  return [terms](const OpInfo& info) -> Kernel {
    const bool periodic = info.node().get_int("periodic", 1) != 0;
    const auto type = static_cast<DType>(info.node().get_int("output_datatype", 1));
    return [=](Call& call) {
      const int64_t size = call.in(0).item<int64_t>();
      require_room({{size}}, sizeof(double));
      const double steps = static_cast<double>(std::max<int64_t>(periodic ? size : size - 1, 1));
      const at::Tensor x = at::arange(size, at::kDouble) * (2 * std::numbers::pi / steps);
      call.out(0, terms[0] - terms[1] * at::cos(x) + terms[2] * at::cos(2 * x), type);
    };
  };
}

double hertz_to_mel(double hertz) { return 2595 * std::log10(1 + hertz / 700); }
double mel_to_hertz(double mel) { return 700 * (std::pow(10.0, mel / 2595) - 1); }

/// Triangles between neighbouring points that lie evenly on the mel scale, as columns over the bins of a spectrum.
at::Tensor mel_matrix(int64_t mel_bins, int64_t dft_length, int64_t sample_rate, double lowest, double highest) {
  const int64_t bins = dft_length / 2 + 1;
  require_room({{bins, mel_bins}});
  std::vector<int64_t> points(static_cast<size_t>(mel_bins) + 2);
  const double low = hertz_to_mel(lowest);
  const double step = (hertz_to_mel(highest) - low) / static_cast<double>(points.size());
  for (size_t i = 0; i < points.size(); ++i) {
    const double hertz = mel_to_hertz(low + step * static_cast<double>(i));
    const double bin = static_cast<double>(dft_length + 1) * hertz / static_cast<double>(sample_rate);
    if (!(bin >= 0 && bin < static_cast<double>(bins))) {
      fail(ErrorCode::InvalidInput, "upper_edge_hertz", "{} Hz lies outside the {} bins of the spectrum", hertz, bins);
    }
    points[i] = static_cast<int64_t>(bin);
  }
  at::Tensor matrix = at::zeros({bins, mel_bins}, at::kFloat);
  auto cell = matrix.accessor<float, 2>();
  for (int64_t i = 0; i < mel_bins; ++i) {
    const int64_t left = points[static_cast<size_t>(i)];
    const int64_t center = points[static_cast<size_t>(i) + 1];
    const int64_t right = points[static_cast<size_t>(i) + 2];
    for (int64_t j = left; j < center; ++j) {
      cell[j][i] = static_cast<float>(j - left) / static_cast<float>(center - left);
    }
    cell[center][i] = 1;
    for (int64_t j = center + 1; j < right; ++j) {
      cell[j][i] = static_cast<float>(right - j) / static_cast<float>(right - center);
    }
  }
  return matrix;
}

Kernel make_mel_weight_matrix(const OpInfo& info) {
  const auto type = static_cast<DType>(info.node().get_int("output_datatype", 1));
  return [type](Call& call) {
    const int64_t mel_bins = call.in(0).item<int64_t>();
    const int64_t dft_length = call.in(1).item<int64_t>();
    const int64_t sample_rate = call.in(2).item<int64_t>();
    if (mel_bins < 0 || dft_length < 0 || sample_rate < 1) {
      fail(ErrorCode::InvalidInput, "num_mel_bins", "{} mel bins over a transform of {} at {} Hz", mel_bins, dft_length,
           sample_rate);
    }
    call.out(0, mel_matrix(mel_bins, dft_length, sample_rate, call.in(3).item<double>(), call.in(4).item<double>()),
             type);
  };
}

}  // namespace

void register_signal(OpRegistry& ops) {
  ops.add("DFT", make_dft, fixed_shape({1, 2}));
  ops.add("STFT", make_stft, fixed_shape({1, 3}));
  ops.add("HannWindow", cosine_window({0.5, 0.5, 0}), fixed_shape({0}));
  ops.add("HammingWindow", cosine_window({25.0 / 46, 21.0 / 46, 0}), fixed_shape({0}));
  ops.add("BlackmanWindow", cosine_window({0.42, 0.5, 0.08}), fixed_shape({0}));
  ops.add("MelWeightMatrix", make_mel_weight_matrix, fixed_shape({0, 1, 2, 3, 4}));
}

}  // namespace kaon
