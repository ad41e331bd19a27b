#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace kaon {

/// The matrices of algorithms: row-major, without padding. What these functions give does not depend on the number of
/// threads: work is cut into blocks of fixed size, and each is computed by one thread.
template <typename T>
struct BasicMatrix {
  BasicMatrix() = default;
  BasicMatrix(int64_t row_count, int64_t col_count)
      : rows(row_count), cols(col_count), data(static_cast<size_t>(row_count * col_count)) {}

  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<T> data;

  T& operator()(int64_t i, int64_t j) { return data[static_cast<size_t>(i * cols + j)]; }
  T operator()(int64_t i, int64_t j) const { return data[static_cast<size_t>(i * cols + j)]; }
  std::span<T> row(int64_t i) { return std::span<T>(data).subspan(static_cast<size_t>(i * cols), width()); }
  std::span<const T> row(int64_t i) const {
    return std::span<const T>(data).subspan(static_cast<size_t>(i * cols), width());
  }

 private:
  size_t width() const { return static_cast<size_t>(cols); }
};

/// Looks at row-major numbers that lie elsewhere, or, by t(), at their transpose.
template <typename T>
class BasicMatrixView {
 public:
  /// Throws InvalidInput unless `data` holds rows · cols numbers.
  BasicMatrixView(std::span<const T> data, int64_t rows, int64_t cols);
  BasicMatrixView(const BasicMatrix<T>& matrix)  // a view, as std::span is one of a vector
      : BasicMatrixView(std::span<const T>(matrix.data), matrix.rows, matrix.cols) {}

  BasicMatrixView t() const;
  int64_t rows() const { return transposed_ ? cols_ : rows_; }
  int64_t cols() const { return transposed_ ? rows_ : cols_; }
  bool transposed() const { return transposed_; }
  /// As they lie in memory, and the length of a row there.
  std::span<const T> data() const { return data_; }
  int64_t stride() const { return cols_; }
  /// Where element (i, j) lies.
  const T* at(int64_t i, int64_t j) const { return data_.data() + (transposed_ ? j * cols_ + i : i * cols_ + j); }

 private:
  std::span<const T> data_;
  int64_t rows_ = 0;
  int64_t cols_ = 0;
  bool transposed_ = false;
};

using Matrix = BasicMatrix<double>;
using FloatMatrix = BasicMatrix<float>;
using MatrixView = BasicMatrixView<double>;
using FloatMatrixView = BasicMatrixView<float>;

/// a · b. Throws InvalidInput where the shapes do not go together, as all of these do.
Matrix multiply(MatrixView a, MatrixView b);
FloatMatrix multiply(FloatMatrixView a, FloatMatrixView b);

/// gram += x · xᵀ, the lower triangle alone (see mirror_lower): x is n × samples (give `x.t()` where each row is a
/// sample), gram n × n. Products are summed in float32 over at most 512 samples, and those sums in float64.
void add_gram(Matrix& gram, FloatMatrixView x);

/// Copies the lower triangle into the upper one.
void mirror_lower(Matrix& a);

/// The lower triangle L of a = L · Lᵀ, zeros above. Only the lower triangle of `a` is read. Throws Numeric, naming
/// `what` and the row, where `a` is not positive definite.
Matrix cholesky(Matrix a, std::string_view what);

struct DampedCholesky {
  Matrix factor;
  double damping = 0;  ///< what had to be added to the diagonal
};

/// The factor of a + damping · I with the least damping of 0, 1e-8, 1e-7 … 1e-1 times the mean of the diagonal that
/// makes it positive definite. Throws Numeric when none does.
DampedCholesky damped_cholesky(const Matrix& a, std::string_view what);

/// x of t · x = b, where `t` is lower triangular, or upper: a lower one's t(). The other triangle is not read.
Matrix solve_triangular(MatrixView t, Matrix b);
/// x of L · Lᵀ · x = b.
Matrix solve_cholesky(const Matrix& factor, Matrix b);
/// L⁻¹, zeros above, of a lower triangle.
Matrix inverse_of_lower(const Matrix& lower);

/// The square root of the sum of squares, in float64.
double frobenius_norm(MatrixView a);
double frobenius_norm(FloatMatrixView a);

}  // namespace kaon
