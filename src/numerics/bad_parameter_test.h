#pragma once
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace kaon {

/// Runs `call` and returns where() of the InvalidInput it throws.
template <class Call>
std::string parameter_at_fault(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::InvalidInput);
    return error.where();
  }
  return "nothing thrown";
}

}  // namespace kaon
