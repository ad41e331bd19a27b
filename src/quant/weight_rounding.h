#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "quant/algorithm.h"
#include "quant/layer_product.h"
#include "quant/layer_statistics.h"

namespace kaon {

/// The tile of every element, in the tensor's order.
std::vector<int64_t> tiles_of(const Tiling& tiling);

/// A weight with an integer or float format, cut into the rows that its layer multiplies with, and the grid it has to
/// end on. The code of a float format is the number that it stands for.
struct GridWeight {
  Quantizer* quantizer = nullptr;
  std::vector<const Layer*> layers;  ///< that share it
  LayerProduct product;
  FloatMatrix exact;  ///< [all_rows, cols]; so are the others
  FloatMatrix scale;
  FloatMatrix zero;
  double lowest = 0;  ///< codes
  double highest = 0;
  bool is_float = false;
  int lowest_exponent = 0;  ///< of floats
  int mantissa_bits = 0;

  const std::string& name() const { return layers.front()->name; }
  /// The code, less the zero point, nearest to any number.
  float on_grid(double code, double zero_point) const;
  /// The code nearest to `value`, less the zero point.
  float nearest(double value, int64_t row, int64_t col) const;
  double step(int64_t row, int64_t col) const { return static_cast<double>(scale(row, col)); }
  /// Spreads scales and zero points over the elements.
  void set_params(const QuantParams& params);
};

/// The weights of enabled quantizers with formats of up to 8 bits; one note names what is left alone, and why.
std::vector<GridWeight> grid_weights(const AlgorithmInput& input);

/// The statistics of what each weight multiplies in the float model; those of the layers that share it are summed.
std::vector<std::shared_ptr<const InputStatistics>> statistics_of(std::span<const GridWeight> weights,
                                                                  const AlgorithmInput& input);
/// The same in the network as it is quantized so far.
std::vector<std::shared_ptr<const InputStatistics>> quantized_statistics_of(std::span<const GridWeight> weights,
                                                                            const AlgorithmInput& input);

/// The codes, less their zero points, that are nearest to what constant_of() says.
FloatMatrix codes_of(const QuantizedModel& quantized, const GridWeight& weight);

/// Puts the weight with these codes, less their zero points, into QuantizedModel::rounded.
void write_codes(QuantizedModel& quantized, const GridWeight& weight, const FloatMatrix& codes);

/// Rows of one group, and what they are rounded towards.
struct GroupRows {
  const GridWeight& weight;
  int64_t group = 0;
  const Matrix& target;  ///< [rows, cols]
  const Matrix& gram;    ///< [cols, cols]
  int64_t seen = 0;      ///< columns of data that `gram` sums up

  int64_t first_row() const { return group * weight.product.rows; }
};

/// (w' - w)ᵀ·G·(w' - w) of each row, with the codes of all rows.
std::vector<double> row_errors(const GroupRows& rows, const FloatMatrix& codes);

struct GptqOptions {
  double damping = 0.01;  ///< times the mean of the diagonal
  bool act_order = true;
};

/// What rounding a group's columns one after the other needs to know of G.
struct GptqFactor {
  std::vector<int64_t> order;  ///< of the columns
  FloatMatrix lower;           ///< Uᵀ of G⁻¹ = Uᵀ·U, U upper triangular, rows and columns in that order
  double more = 0;             ///< what had to be added to the diagonal beyond the damping, relative to its mean
  bool nothing = false;        ///< G is 0
};
GptqFactor factor_for_gptq(const Matrix& gram, const GptqOptions& options, const std::string& what);

/// Rounds column after column; what one loses, those to come take back (Frantar et al. 2022, arXiv:2210.17323). Returns
/// the error that each row is left with.
std::vector<double> round_gptq(const GroupRows& rows, const GptqFactor& factor, FloatMatrix& codes);

/// Changes one code at a time, by whatever lowers the error of its row most, until a sweep changes nothing.
void descend(const GroupRows& rows, double damping, int64_t sweeps, FloatMatrix& codes);

/// Calls body(weight, group) for every group of every weight; small ones side by side, large ones by all threads.
void for_each_group(std::span<const GridWeight> weights, const std::function<void(size_t, int64_t)>& body);

/// The rows of a group as they are in the float model.
Matrix exact_rows(const GridWeight& weight, int64_t group);

}  // namespace kaon
