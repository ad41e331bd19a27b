// Runs the ONNX project's own tests (Debian: libonnx-testdata) and compares the result with the list of tests that are
// known not to pass:
//
//   conformance --data FOLDER --list FILE [--shard I/N] [--filter GLOB] [--update]
//
// The list has one `test_name  reason` a line. A test that fails and is not listed is an error, and so are a listed
// test that passes and a listed name that is no test. --update rewrites the list, keeping the reasons it already has.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"

namespace fs = std::filesystem;
using namespace kaon;

namespace {

constexpr double kRelative = 1e-3;
constexpr double kAbsolute = 1e-7;
constexpr const char* kSuites[] = {"node", "pytorch-converted", "pytorch-operator", "simple"};

struct Options {
  fs::path data;
  fs::path list;
  size_t shard = 0;
  size_t shards = 1;
  std::string filter = "*";
  bool update = false;
};

struct Suite {
  std::string name;
  std::vector<fs::path> tests;
};

std::vector<fs::path> folders(const fs::path& parent) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.is_directory()) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The files stem_0.pb, stem_1.pb … that belong to `infos`. Some hold bfloat16 as bare uint16.
std::vector<Tensor> read_numbered(const fs::path& folder, const std::string& stem,
                                  const std::vector<ValueInfo>& infos) {
  std::vector<Tensor> tensors;
  for (const ValueInfo& info : infos) {
    Tensor tensor = read_tensor_proto(folder / fmt::format("{}_{}.pb", stem, tensors.size()));
    const bool bare = info.type == DType::BFloat16 && tensor.type() == DType::UInt16;
    tensors.push_back(bare ? Tensor::copy_bytes(info.type, tensor.shape(), tensor.bytes()) : tensor);
  }
  return tensors;
}

bool is_float(DType type) {
  return type == DType::Float32 || type == DType::Float64 || type == DType::Float16 || type == DType::BFloat16;
}

bool close(double got, double wanted) {
  if (std::isnan(wanted) || std::isnan(got)) return std::isnan(wanted) && std::isnan(got);
  if (got == wanted) return true;
  return std::abs(got - wanted) <= kAbsolute + kRelative * std::abs(wanted);
}

template <typename T, typename Same>
std::string first_difference(const std::vector<T>& got, const std::vector<T>& wanted, Same same) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!same(got[i], wanted[i])) return fmt::format("element {} is {}, not {}", i, got[i], wanted[i]);
  }
  return {};
}

/// What is wrong with `got`, or "".
std::string compare(const Tensor& got, const Tensor& wanted) {
  if (got.type() != wanted.type()) return fmt::format("type {}, not {}", name_of(got.type()), name_of(wanted.type()));
  if (got.shape() != wanted.shape()) {
    return fmt::format("shape {}, not {}", to_string(got.shape()), to_string(wanted.shape()));
  }
  if (is_float(got.type())) return first_difference(got.to_float(), wanted.to_float(), close);
  const auto bytes = [](const Tensor& tensor) {
    std::vector<int> out;
    for (const std::byte byte : tensor.bytes()) out.push_back(std::to_integer<int>(byte));
    return out;
  };
  // 8-bit floats and narrower types: the codes must agree.
  if (bits_of(got.type()) <= 8) return first_difference(bytes(got), bytes(wanted), std::equal_to<>());
  return first_difference(got.to_int64(), wanted.to_int64(), std::equal_to<>());
}

std::string compare(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  if (got.size() != wanted.size()) return fmt::format("{} outputs, not {}", got.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (const std::string wrong = compare(got[i], wanted[i]); !wrong.empty()) {
      return fmt::format("output {}: {}", i, wrong);
    }
  }
  return {};
}

/// Runs one test, as a whole and step by step. Returns why it did not pass, or "".
std::string run_test(const fs::path& folder) try {
  Engine engine(read_onnx(folder / "model.onnx"));
  const Graph& graph = engine.model().graph;
  const std::vector<ValueInfo> required = graph.required_inputs();
  bool ran = false;
  for (const fs::path& set : folders(folder)) {
    const std::vector<Tensor> inputs = read_numbered(set, "input", required);
    const std::vector<Tensor> wanted = read_numbered(set, "output", graph.outputs);
    TensorMap feeds;
    for (size_t i = 0; i < inputs.size(); ++i) feeds.emplace(required[i].name, inputs[i]);
    if (const std::string wrong = compare(engine.run(feeds), wanted); !wrong.empty()) return wrong;
    Frame frame = engine.start(feeds);
    frame.finish();
    if (const std::string wrong = compare(frame.outputs(), wanted); !wrong.empty()) return "step by step: " + wrong;
    ran = true;
  }
  return ran ? "" : "no test data";
} catch (const Error& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::vector<Suite> find_suites(const Options& options) {
  std::vector<Suite> suites;
  for (const char* name : kSuites) {
    Suite& suite = suites.emplace_back(Suite{name, {}});
    for (const fs::path& test : folders(options.data / name)) {
      if (fs::exists(test / "model.onnx")) suite.tests.push_back(test);
    }
  }
  return suites;
}

std::map<std::string, std::string> read_list(const fs::path& path) {
  std::map<std::string, std::string> reasons;
  std::ifstream file(path);
  if (!file) fail(ErrorCode::Io, path.string(), "cannot be read");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t space = line.find(' ');
    const size_t reason = line.find_first_not_of(' ', space);
    if (space == std::string::npos || reason == std::string::npos) {
      fail(ErrorCode::InvalidInput, path.string(), "'{}' gives no reason", line);
    }
    if (!reasons.emplace(line.substr(0, space), line.substr(reason)).second) {
      fail(ErrorCode::InvalidInput, path.string(), "'{}' is listed twice", line.substr(0, space));
    }
  }
  return reasons;
}

void write_list(const fs::path& path, const std::map<std::string, std::string>& reasons) {
  std::ofstream file(path);
  file << "# ONNX tests that do not pass, and why. `conformance --update` rewrites this file and keeps the reasons.\n";
  for (const auto& [name, reason] : reasons) file << name << "  " << reason << '\n';
}

int check(const Options& options) {
  const std::vector<Suite> suites = find_suites(options);
  std::map<std::string, std::string> listed = read_list(options.list);
  std::map<std::string, std::string> failed;
  int wrong = 0;
  size_t index = 0;
  std::map<std::string, std::string> unknown = listed;
  for (const Suite& suite : suites) {
    size_t passed = 0;
    size_t run = 0;
    for (const fs::path& folder : suite.tests) {
      const std::string name = folder.filename().string();
      unknown.erase(name);
      if (!glob_match(options.filter, name) || index++ % options.shards != options.shard) continue;
      ++run;
      const std::string reason = run_test(folder);
      const bool expected = !listed.contains(name);
      if (reason.empty()) {
        ++passed;
        if (!expected && !options.update) std::cout << name << ": passes, but is listed\n", ++wrong;
        listed.erase(name);
      } else {
        if (expected && !options.update) std::cout << name << ": " << reason << '\n', ++wrong;
        failed.emplace(name, reason);
      }
    }
    std::cout << suite.name << ": " << passed << " of " << run << " passed\n";
  }
  if (options.update) {
    for (const auto& [name, reason] : unknown) listed.erase(name);
    listed.merge(failed);
    write_list(options.list, listed);
    return 0;
  }
  for (const auto& [name, reason] : unknown) std::cout << name << ": listed, but no such test\n", ++wrong;
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::string shard = "0/1";
  CLI::App app("Runs the ONNX project's own tests");
  app.add_option("--data", options.data, "the folder with node/, simple/ …")->required();
  app.add_option("--list", options.list, "the tests that are known not to pass")->required();
  app.add_option("--shard", shard, "I/N: every N-th test, from the I-th on");
  app.add_option("--filter", options.filter, "only tests whose name matches");
  app.add_flag("--update", options.update, "rewrite the list");
  CLI11_PARSE(app, argc, argv);
  if (std::sscanf(shard.c_str(), "%zu/%zu", &options.shard, &options.shards) != 2 || options.shard >= options.shards) {
    std::cerr << "--shard wants I/N with I < N, not " << shard << '\n';
    return 2;
  }
  try {
    return check(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
