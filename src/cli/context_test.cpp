#include "cli/context.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kaon {
namespace {

std::string said(const std::vector<std::string>& lines, bool verbose = false) {
  CommonFlags flags;
  flags.verbose = verbose;
  std::ostringstream out, err;
  Context(flags, out, err).notes(lines);
  return err.str();
}

TEST(Notes, WhatIsSaidOfSeveralIsOneLine) {
  const std::vector<std::string> lines = {"a: stays float", "x: is odd", "b: stays float", "c: stays float"};
  EXPECT_EQ(said(lines), "3 times, from a to c: stays float (-v lists them)\nx: is odd\n");
  EXPECT_EQ(said(lines, true), "a: stays float\nx: is odd\nb: stays float\nc: stays float\n");
}

TEST(Notes, ManyWithOtherDetailsAreOneLine) {
  std::vector<std::string> lines = {"a: stays float: 1 byte", "b: stays float: 2 bytes", "c: stays float: 3 bytes"};
  EXPECT_EQ(said(lines), "a: stays float: 1 byte\nb: stays float: 2 bytes\nc: stays float: 3 bytes\n");
  lines.insert(lines.end(), {"d: stays float: 4 bytes", "e: stays float: 4 bytes", "the file's opset is 21"});
  EXPECT_EQ(said(lines),
            "5 times, from a to e: stays float (-v lists them); the first: 1 byte\nthe file's opset is 21\n");
}

}  // namespace
}  // namespace kaon
