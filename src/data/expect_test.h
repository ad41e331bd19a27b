#pragma once
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset.h"
#include "graph/graph.h"

namespace kaon {

/// -1 is a dimension "N".
inline ValueInfo input_of(const std::string& name, DType type, const Shape& shape) {
  std::vector<Dim> dims;
  for (const int64_t dim : shape) dims.push_back(dim < 0 ? Dim{{}, "N"} : Dim{dim, ""});
  return {.name = name, .type = type, .shape = dims};
}

template <typename T>
std::vector<T> values_of(const Tensor& tensor) {
  return {tensor.as<T>().begin(), tensor.as<T>().end()};
}

/// `body` throws an Error of this code whose text contains `message`.
template <typename Body>
void expect_error(ErrorCode code, const std::string& message, const Body& body) {
  try {
    body();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos)
        << "got: " << error.what() << "\nexpected: " << message;
  }
}

}  // namespace kaon
