#pragma once
#include <dnnl.hpp>
#include <memory>
#include <vector>

#include "engine/plan/lowering.h"
#include "engine/plan/plan_op.h"
#include "engine/program.h"

namespace kaon {

/// Work on codes: uint8 values laid out as [samples, height, width, channels] that stand for (code + low) · step of
/// their grid.
struct CodesOp {
  enum class Kind {
    Encode,  ///< float32 to codes
    Decode,  ///< codes to float32
    Conv,    ///< exact sums of products of integers; gives codes, or float32 where the result has no grid
    Add,     ///< of two values, clipped
  };
  Kind kind = Kind::Encode;
  std::vector<FlatQuantizer::Grid> in;  ///< of the inputs that are codes
  FlatQuantizer::Grid out{};            ///< of the output, where that is codes

  dnnl::primitive_desc convolution;
  int threads = 0;     ///< that it was made for
  at::Tensor weights;  ///< int8, as `weights_desc` says
  Desc weights_desc;
  at::Tensor bias;  ///< in units of the sums

  std::vector<QuantizeAction::Clip> clips;  ///< of the sum, before it is rounded

  /// Whether it does the same as another of the same node on the same values.
  bool same_grids(const CodesOp& other) const { return kind == other.kind && in == other.in && out == other.out; }
};

/// The layout of codes, for a float32 value.
Desc channels_last(const Shape& shape, dnnl::memory::data_type type = dnnl::memory::data_type::f32);

/// Where pairs of QuantizeLinear and DequantizeLinear were joined: adds the codes of every value that might have some,
/// so that they have the same ids in all variants.
void reserve_codes(PlanGraph& graph);

/// Convolutions of a file whose data and weights are quantized to 8 bits sum integers, and hand codes to one another.
/// Only where the machine multiplies bytes without losing bits; the rest stays float32, as does a simulation, whose
/// weights have no scales. The two differ where a sum lies between two codes.
void use_codes(PlanGraph& graph, const Program& program, PackedWeights& packed);

class EncodeAction : public Action {
 public:
  EncodeAction(FlatQuantizer::Grid grid, int32_t in, int32_t out, int64_t count)
      : grid_(grid), in_(in), out_(out), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  FlatQuantizer::Grid grid_;
  int32_t in_, out_;
  int64_t count_;
};

class DecodeAction : public Action {
 public:
  DecodeAction(FlatQuantizer::Grid grid, int32_t in, int32_t out, int64_t count)
      : grid_(grid), in_(in), out_(out), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  FlatQuantizer::Grid grid_;
  int32_t in_, out_;
  int64_t count_;
};

class AddCodesAction : public Action {
 public:
  AddCodesAction(std::shared_ptr<const CodesOp> op, int32_t a, int32_t b, int32_t out, int64_t count)
      : op_(std::move(op)), a_(a), b_(b), out_(out), count_(count) {}
  void run(Runtime& runtime) override;

 private:
  std::shared_ptr<const CodesOp> op_;
  int32_t a_, b_, out_;
  int64_t count_;
};

}  // namespace kaon
