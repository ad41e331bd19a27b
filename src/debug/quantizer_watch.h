#pragma once
#include <vector>

#include "debug/channels.h"
#include "debug/debug_report.h"
#include "debug/limits.h"

namespace kaon {

/// Where the channels of an activation lie: Second as in NCHW, ByRank: Second from rank 4 on, else Last.
enum class ChannelPlace { ByRank, Second, Last };

/// One quantizer while data goes by.
class QuantizerWatch {
 public:
  QuantizerWatch(const Quantizer& quantizer, ChannelPlace place, bool histograms);

  const Quantizer& quantizer() const { return quantizer_; }
  /// NaN and Inf so far, in either run.
  int64_t non_finite() const { return result_.non_finite(); }

  /// The four values of one batch: x, q and r; l is computed here.
  void see(const Tensor& input, const Tensor& output, const Tensor& reference);
  /// A weight or bias and what goes into its quantizer; `axis` counts its output channels.
  void see_constant(const Tensor& exact, const Tensor& rounded, int64_t axis);

  void see_effect(double gain, double alone) {
    result_.output_gain = gain;
    result_.output_alone = alone;
  }
  void see_weight_part(double part) { result_.weight_part = part; }

  /// All that was learned.
  QuantizerDebug finish();

 private:
  struct Values;
  void sweep(const Values& values);
  int64_t axis_for(int64_t rank) const;

  const Quantizer& quantizer_;
  ChannelPlace place_;
  bool histograms_;
  QuantizerDebug result_;
  ChannelCounter channels_;
  AbsMeans means_;
  std::vector<float> local_;  ///< l of one batch, where it cannot be made piece by piece
};

}  // namespace kaon
