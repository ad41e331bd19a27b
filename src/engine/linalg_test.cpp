#include "engine/linalg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/parallel.h"
#include "graph/build_test.h"

namespace kaon {
namespace {

template <typename T>
BasicMatrix<T> random_matrix(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<double> normal;
  BasicMatrix<T> matrix(rows, cols);
  for (T& value : matrix.data) value = static_cast<T>(normal(bits));
  return matrix;
}

/// x · xᵀ of a random n × 2n matrix: well conditioned.
Matrix positive(int64_t n, uint32_t seed) {
  const Matrix x = random_matrix<double>(n, 2 * n, seed);
  return multiply(x, MatrixView(x).t());
}

template <typename T>
double largest_difference(const BasicMatrix<T>& a, const BasicMatrix<T>& b) {
  EXPECT_EQ(a.rows, b.rows);
  EXPECT_EQ(a.cols, b.cols);
  double largest = 0;
  for (size_t i = 0; i < a.data.size(); ++i) largest = std::max(largest, std::abs(double{a.data[i]} - b.data[i]));
  return largest;
}

Matrix identity(int64_t n) {
  Matrix matrix(n, n);
  for (int64_t i = 0; i < n; ++i) matrix(i, i) = 1;
  return matrix;
}

// Sizes below, at and beyond a block of 128.
constexpr int64_t kSizes[] = {1, 5, 127, 128, 129, 300};

TEST(Linalg, ProductsAgreeWithTheirDefinition) {
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{1, 1, 1}, {3, 200, 2}, {130, 7, 257}, {64, 0, 3}}) {
    const Matrix a = random_matrix<double>(m, k, 1);
    const Matrix b = random_matrix<double>(k, n, 2);
    Matrix expected(m, n);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t l = 0; l < k; ++l) expected(i, j) += a(i, l) * b(l, j);
      }
    }
    EXPECT_LT(largest_difference(multiply(a, b), expected), 1e-12 * static_cast<double>(k + 1));
    Matrix turned(n, m);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) turned(j, i) = expected(i, j);
    }
    EXPECT_LT(largest_difference(multiply(MatrixView(b).t(), MatrixView(a).t()), turned), 1e-12 * (k + 1.0));
  }
  const FloatMatrix a = random_matrix<float>(5, 6, 3);
  const FloatMatrix product = multiply(a, FloatMatrixView(a).t());
  EXPECT_NEAR(product(4, 4), std::pow(frobenius_norm(FloatMatrixView(a.row(4), 1, 6)), 2), 1e-5);
}

TEST(Linalg, GramIsTheSumOfOuterProducts) {
  for (const int64_t n : kSizes) {
    const FloatMatrix x = random_matrix<float>(n, 1100, 4);
    Matrix expected(n, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t k = 0; k < x.cols; ++k) expected(i, j) += 2 * double{x(i, k)} * double{x(j, k)};
      }
    }
    Matrix gram(n, n);
    add_gram(gram, x);
    FloatMatrix samples_in_rows(x.cols, n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < x.cols; ++k) samples_in_rows(k, i) = x(i, k);
    }
    add_gram(gram, FloatMatrixView(samples_in_rows).t());
    mirror_lower(gram);
    EXPECT_LT(largest_difference(gram, expected), 1e-3) << n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) ASSERT_EQ(gram(i, j), gram(j, i));
    }
  }
}

TEST(Linalg, SumsOfManySamplesStayExact) {
  // Float32 alone would stop counting at 2^24.
  const FloatMatrix ones = [] {
    FloatMatrix matrix(1, (1 << 24) + 512);
    std::fill(matrix.data.begin(), matrix.data.end(), 1.0F);
    return matrix;
  }();
  Matrix gram(1, 1);
  add_gram(gram, ones);
  EXPECT_EQ(gram(0, 0), static_cast<double>(ones.cols));
}

TEST(Linalg, CholeskySolvesAndInverts) {
  for (const int64_t n : kSizes) {
    const Matrix a = positive(n, 5);
    const Matrix factor = cholesky(a, "a");
    EXPECT_LT(largest_difference(multiply(factor, MatrixView(factor).t()), a), 1e-11 * static_cast<double>(n)) << n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) ASSERT_EQ(factor(i, j), 0);
    }
    const Matrix b = random_matrix<double>(n, 150, 6);
    EXPECT_LT(largest_difference(multiply(a, solve_cholesky(factor, b)), b), 1e-9) << n;
    EXPECT_LT(largest_difference(multiply(MatrixView(factor).t(), solve_triangular(MatrixView(factor).t(), b)), b),
              1e-9);
    const Matrix inverse = inverse_of_lower(factor);
    EXPECT_LT(largest_difference(multiply(factor, inverse), identity(n)), 1e-9) << n;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < i; ++j) ASSERT_EQ(inverse(j, i), 0);
    }
  }
}

TEST(Linalg, SingularMatricesAreNamedOrDamped) {
  const FloatMatrix x = random_matrix<float>(200, 150, 7);  // rank 150
  Matrix gram(200, 200);
  add_gram(gram, x);
  mirror_lower(gram);
  const std::string message = error_of(ErrorCode::Numeric, [&] { cholesky(gram, "conv1"); });
  EXPECT_NE(message.find("conv1: not positive definite at row"), std::string::npos) << message;
  const DampedCholesky damped = damped_cholesky(gram, "conv1");
  EXPECT_GT(damped.damping, 0);
  EXPECT_LT(damped.damping, 1e-4 * 150);
  Matrix lifted = gram;
  for (int64_t i = 0; i < 200; ++i) lifted(i, i) += damped.damping;
  EXPECT_LT(largest_difference(multiply(damped.factor, MatrixView(damped.factor).t()), lifted), 1e-9);
  EXPECT_EQ(damped_cholesky(positive(50, 8), "a").damping, 0);

  // A channel that is always zero has an empty row.
  Matrix dead = positive(3, 9);
  for (int64_t i = 0; i < 3; ++i) dead(1, i) = dead(i, 1) = 0;
  EXPECT_NE(error_of(ErrorCode::Numeric, [&] { cholesky(dead, "a"); }).find("row 1 of 3"), std::string::npos);
  EXPECT_GT(damped_cholesky(dead, "a").damping, 0);

  Matrix hopeless = identity(3);
  hopeless(2, 2) = -5;
  error_of(ErrorCode::Numeric, [&] { damped_cholesky(hopeless, "a"); });
  hopeless(2, 2) = std::nan("");
  error_of(ErrorCode::Numeric, [&] { damped_cholesky(hopeless, "a"); });
  error_of(ErrorCode::Numeric, [&] { damped_cholesky(Matrix(2, 2), "a"); });
}

TEST(Linalg, ShapesMustGoTogether) {
  const Matrix a(2, 3);
  error_of(ErrorCode::InvalidInput, [&] { multiply(a, a); });
  error_of(ErrorCode::InvalidInput, [&] { cholesky(a, "a"); });
  error_of(ErrorCode::InvalidInput, [&] { solve_triangular(identity(2), Matrix(3, 1)); });
  error_of(ErrorCode::InvalidInput, [&] { MatrixView(std::span<const double>(a.data), 2, 2); });
  Matrix gram(2, 2);
  error_of(ErrorCode::InvalidInput, [&] { add_gram(gram, FloatMatrix(3, 4)); });
}

TEST(Linalg, ResultsDoNotDependOnTheThreads) {
  const int before = thread_count();
  const FloatMatrix x = random_matrix<float>(700, 900, 10);
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    Matrix gram(700, 700);
    add_gram(gram, x);
    mirror_lower(gram);
    const Matrix factor = cholesky(gram, "gram");
    const Matrix inverse = inverse_of_lower(factor);
    std::vector<double> all = multiply(factor, inverse).data;
    all.insert(all.end(), gram.data.begin(), gram.data.end());
    all.insert(all.end(), inverse.data.begin(), inverse.data.end());
    results.push_back(std::move(all));
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace kaon
