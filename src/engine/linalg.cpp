#include "engine/linalg.h"

#include <cblas.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>

#include "base/error.h"
#include "base/parallel.h"
#include "engine/plan/simd.h"

namespace kaon {

namespace {

constexpr int64_t kBlock = 128;  ///< rows and columns of a block that one thread computes
constexpr int64_t kSamplesInFloat = 512;

/// OpenBLAS computes on the thread that calls it while one of these lives: parallel_for cuts the work, so that results
/// do not depend on the number of threads and there is one pool of them.
class OneBlasThread {
 public:
  OneBlasThread() {
    const std::lock_guard lock(mutex());
    if (users()++ > 0) return;
    before() = openblas_get_num_threads();
    openblas_set_num_threads(1);
  }
  ~OneBlasThread() {
    const std::lock_guard lock(mutex());
    if (--users() == 0) openblas_set_num_threads(before());
  }
  OneBlasThread(const OneBlasThread&) = delete;
  OneBlasThread& operator=(const OneBlasThread&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex instance;
    return instance;
  }
  static int& users() {
    static int count = 0;
    return count;
  }
  static int& before() {
    static int count = 0;
    return count;
  }
};

/// Calls body(i) for every i below `count`, each on one thread; a thread that is done takes the next.
void for_each(int64_t count, const auto& body) {
  const OneBlasThread one;
  std::atomic<int64_t> next = 0;
  parallel_for(0, std::min<int64_t>(count, thread_count()), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) body(i);
  });
}

int64_t blocks(int64_t size) { return (size + kBlock - 1) / kBlock; }
int64_t block_size(int64_t begin, int64_t size) { return std::min(kBlock, size - begin); }

/// Calls body(i, j) with the first row and column of every block on and below the diagonal, from `begin` on.
void for_each_lower_block(int64_t begin, int64_t size, const auto& body) {
  const int64_t count = blocks(size - begin);
  for_each(count * (count + 1) / 2, [&](int64_t index) {
    int64_t row = 0;
    while (index > row) index -= ++row;
    body(begin + row * kBlock, begin + index * kBlock);
  });
}

template <typename T>
CBLAS_TRANSPOSE flag(const BasicMatrixView<T>& view) {
  return view.transposed() ? CblasTrans : CblasNoTrans;
}

/// c = alpha · a · b + beta · c on blocks, with leading dimensions.
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, double alpha, const double* a,
          int64_t lda, const double* b, int64_t ldb, double beta, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}
void gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, ta, tb, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), alpha, a,
              static_cast<int>(lda), b, static_cast<int>(ldb), beta, c, static_cast<int>(ldc));
}

template <typename T>
BasicMatrix<T> multiply_blocks(const BasicMatrixView<T>& a, const BasicMatrixView<T>& b) {
  if (a.cols() != b.rows()) {
    fail(ErrorCode::InvalidInput, "multiply", "[{}, {}] times [{}, {}]: the inner sizes differ", a.rows(), a.cols(),
         b.rows(), b.cols());
  }
  BasicMatrix<T> c(a.rows(), b.cols());
  if (a.cols() == 0) return c;
  const int64_t across = blocks(c.cols);
  for_each(blocks(c.rows) * across, [&](int64_t index) {
    const int64_t i = index / across * kBlock;
    const int64_t j = index % across * kBlock;
    gemm(flag(a), flag(b), block_size(i, c.rows), block_size(j, c.cols), a.cols(), T{1}, a.at(i, 0), a.stride(),
         b.at(0, j), b.stride(), T{0}, c.data.data() + i * c.cols + j, c.cols);
  });
  return c;
}

KAON_SIMD void add_floats(const float* values, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += static_cast<double>(values[i]);
}

template <typename T>
double norm(const BasicMatrixView<T>& a) {
  double sum = 0;
  for (const T value : a.data()) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

void require_square(const Matrix& a, std::string_view what) {
  if (a.rows != a.cols) {
    fail(ErrorCode::InvalidInput, std::string(what), "a square matrix is needed, not [{}, {}]", a.rows, a.cols);
  }
}

/// Factors the block that starts at (at, at), of `size` rows, in place. Returns the row whose pivot is not above its
/// `least`, or -1.
int64_t factor_block(Matrix& a, int64_t at, int64_t size, const std::vector<double>& least) {
  for (int64_t j = at; j < at + size; ++j) {
    double pivot = a(j, j);
    for (int64_t k = at; k < j; ++k) pivot -= a(j, k) * a(j, k);
    if (!(pivot > least[static_cast<size_t>(j)]) || !std::isfinite(pivot)) return j;
    a(j, j) = std::sqrt(pivot);
    for (int64_t i = j + 1; i < at + size; ++i) {
      double sum = a(i, j);
      for (int64_t k = at; k < j; ++k) sum -= a(i, k) * a(j, k);
      a(i, j) = sum / a(j, j);
    }
  }
  return -1;
}

/// Factors `a` in place; returns the row where it is not positive definite, or -1.
int64_t factor(Matrix& a) {
  const int64_t n = a.rows;
  // A singular matrix may be left with pivots of the size of rounding errors instead of 0.
  std::vector<double> least(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const double rounding = static_cast<double>(n) * std::numeric_limits<double>::epsilon();
    least[static_cast<size_t>(i)] = std::max(0.0, a(i, i)) * rounding;
  }
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t size = block_size(at, n);
    const int64_t bad = factor_block(a, at, size, least);
    if (bad >= 0) return bad;
    const int64_t below = at + size;
    for_each(blocks(n - below), [&](int64_t index) {
      const int64_t i = below + index * kBlock;
      cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasTrans, CblasNonUnit, static_cast<int>(block_size(i, n)),
                  static_cast<int>(size), 1.0, &a(at, at), static_cast<int>(n), &a(i, at), static_cast<int>(n));
    });
    for_each_lower_block(below, n, [&](int64_t i, int64_t j) {
      gemm(CblasNoTrans, CblasTrans, block_size(i, n), block_size(j, n), size, -1.0, &a(i, at), n, &a(j, at), n, 1.0,
           &a(i, j), n);
    });
  }
  for (int64_t i = 0; i < n; ++i) std::fill(a.row(i).begin() + i + 1, a.row(i).end(), 0.0);
  return -1;
}

}  // namespace

template <typename T>
BasicMatrixView<T>::BasicMatrixView(std::span<const T> data, int64_t rows, int64_t cols)
    : data_(data), rows_(rows), cols_(cols) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();  // what BLAS counts with
  if (rows < 0 || cols < 0 || rows > kMost || cols > kMost || std::ssize(data) != rows * cols) {
    fail(ErrorCode::InvalidInput, "matrix", "{} numbers are not [{}, {}]", data.size(), rows, cols);
  }
}

template <typename T>
BasicMatrixView<T> BasicMatrixView<T>::t() const {
  BasicMatrixView turned = *this;
  turned.transposed_ = !transposed_;
  return turned;
}

template class BasicMatrixView<float>;
template class BasicMatrixView<double>;

Matrix multiply(MatrixView a, MatrixView b) { return multiply_blocks(a, b); }
FloatMatrix multiply(FloatMatrixView a, FloatMatrixView b) { return multiply_blocks(a, b); }

void add_gram(Matrix& gram, FloatMatrixView x) {
  const int64_t n = gram.rows;
  if (gram.cols != n || x.rows() != n) {
    fail(ErrorCode::InvalidInput, "add_gram", "[{}, {}] cannot take the products of [{}, {}] rows", n, gram.cols,
         x.rows(), x.cols());
  }
  // Blocks with few operations for each number that BLAS has to pack cost twice as much.
  constexpr int64_t kWide = 2 * kBlock;
  const int64_t count = (n + kWide - 1) / kWide;
  for_each(count * (count + 1) / 2, [&](int64_t index) {
    int64_t row = 0;
    while (index > row) index -= ++row;
    const int64_t i = row * kWide;
    const int64_t j = index * kWide;
    const int64_t height = std::min(kWide, n - i);
    const int64_t width = std::min(kWide, n - j);
    // Kept, as pages that are new each time cost as much as the products.
    thread_local std::vector<float> part(kWide * kWide);
    for (int64_t from = 0; from < x.cols(); from += kSamplesInFloat) {
      const int64_t samples = std::min(kSamplesInFloat, x.cols() - from);
      if (i == j) {
        cblas_ssyrk(CblasRowMajor, CblasLower, flag(x), static_cast<int>(height), static_cast<int>(samples), 1.0F,
                    x.at(i, from), static_cast<int>(x.stride()), 0.0F, part.data(), static_cast<int>(width));
      } else {
        gemm(flag(x), flag(x.t()), height, width, samples, 1.0F, x.at(i, from), x.stride(), x.at(j, from), x.stride(),
             0.0F, part.data(), width);
      }
      for (int64_t r = 0; r < height; ++r) {
        add_floats(part.data() + r * width, i == j ? r + 1 : width, &gram(i + r, j));
      }
    }
  });
}

void mirror_lower(Matrix& a) {
  require_square(a, "mirror_lower");
  parallel_for(0, blocks(a.rows), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first * kBlock; i < std::min(last * kBlock, a.rows); ++i) {
      for (int64_t j = i + 1; j < a.rows; ++j) a(i, j) = a(j, i);
    }
  });
}

Matrix cholesky(Matrix a, std::string_view what) {
  require_square(a, what);
  const int64_t row = factor(a);
  if (row >= 0) fail(ErrorCode::Numeric, std::string(what), "not positive definite at row {} of {}", row, a.rows);
  return a;
}

DampedCholesky damped_cholesky(const Matrix& a, std::string_view what) {
  require_square(a, what);
  double mean = 0;
  for (int64_t i = 0; i < a.rows; ++i) mean += a(i, i) / static_cast<double>(a.rows);
  for (double share = 0; share < 0.5; share = share == 0 ? 1e-8 : share * 10) {
    DampedCholesky result{a, share * mean};
    for (int64_t i = 0; i < a.rows; ++i) result.factor(i, i) += result.damping;
    if (factor(result.factor) < 0) return result;
  }
  fail(ErrorCode::Numeric, std::string(what),
       "not positive definite, even with a tenth of its mean diagonal ({:g}) added to the diagonal", mean);
}

Matrix solve_triangular(MatrixView t, Matrix b) {
  if (t.rows() != t.cols() || t.rows() != b.rows) {
    fail(ErrorCode::InvalidInput, "solve_triangular", "[{}, {}] cannot be solved for [{}, {}]", t.rows(), t.cols(),
         b.rows, b.cols);
  }
  for_each(blocks(b.cols), [&](int64_t index) {
    const int64_t j = index * kBlock;
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, flag(t), CblasNonUnit, static_cast<int>(b.rows),
                static_cast<int>(block_size(j, b.cols)), 1.0, t.data().data(), static_cast<int>(t.stride()),
                b.data.data() + j, static_cast<int>(b.cols));
  });
  return b;
}

Matrix solve_cholesky(const Matrix& factor, Matrix b) {
  return solve_triangular(MatrixView(factor).t(), solve_triangular(factor, std::move(b)));
}

Matrix inverse_of_lower(const Matrix& lower) {
  require_square(lower, "inverse_of_lower");
  const int64_t n = lower.rows;
  // The columns of L⁻¹ that start at j are zero above row j, so each block is a smaller system.
  Matrix inverse(n, n);
  for (int64_t i = 0; i < n; ++i) inverse(i, i) = 1;
  for_each(blocks(n), [&](int64_t index) {
    const int64_t j = index * kBlock;
    cblas_dtrsm(CblasRowMajor, CblasLeft, CblasLower, CblasNoTrans, CblasNonUnit, static_cast<int>(n - j),
                static_cast<int>(block_size(j, n)), 1.0, lower.data.data() + j * n + j, static_cast<int>(n),
                &inverse(j, j), static_cast<int>(n));
  });
  return inverse;
}

double frobenius_norm(MatrixView a) { return norm(a); }
double frobenius_norm(FloatMatrixView a) { return norm(a); }

}  // namespace kaon
