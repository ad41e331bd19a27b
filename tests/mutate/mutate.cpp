// Runs the ONNX project's own tests with something changed in each: attributes, types, values, shapes, inputs, outputs,
// operators. Whatever comes of it, a result or an error, must come soon, in little memory and without a crash:
//
//   mutate --data FOLDER [--runs N] [--seed S] [--first I] [--filter GLOB] [--memory MIB] [--list]
//
// Runs are made in a child process, hundreds to a child; a run that kills it is reported and the next child goes on
// behind it. `--first I --runs 1 --list` repeats one run and says what was changed and what came of it.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "base/memory_budget.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "base/text.h"
#include "engine/engine.h"
#include "io/onnx/onnx.h"
#include "mutations.h"

namespace fs = std::filesystem;
using namespace kaon;

namespace {

constexpr double kLongestSeconds = 10;  // of computing
constexpr double kLongestWait = 120;    // on a busy machine
constexpr double kMostMemory = 2048;    // MiB
constexpr int64_t kRunsPerChild = 500;

struct Options {
  fs::path data;
  int64_t runs = 1000;
  int64_t first = 0;
  uint64_t seed = 1;
  std::string filter = "*";
  int64_t memory = 1024;  // MiB that a run may ask for
  int64_t overhead = 0;   // MiB that the program itself takes, for instrumented builds
  bool list = false;
};

/// What a child tells its parent, in shared memory.
struct Progress {
  std::atomic<int64_t> run{-1};  ///< the one at work, or the last
  std::atomic<int64_t> ran{0};
  std::atomic<int64_t> refused{0};
  char change[512] = {};
};

std::vector<fs::path> find_tests(const Options& options) {
  std::vector<fs::path> tests;
  for (const char* suite : {"node", "simple"}) {
    for (const auto& entry : fs::directory_iterator(options.data / suite)) {
      if (fs::exists(entry.path() / "model.onnx") && glob_match(options.filter, entry.path().filename().string())) {
        tests.push_back(entry.path());
      }
    }
  }
  std::sort(tests.begin(), tests.end());
  return tests;
}

Trial load(const fs::path& folder) {
  Trial trial;
  trial.model = read_onnx(folder / "model.onnx");
  size_t index = 0;
  for (const ValueInfo& info : trial.model.graph.required_inputs()) {
    trial.inputs.emplace(info.name,
                         read_tensor_proto(folder / "test_data_set_0" / fmt::format("input_{}.pb", index++)));
  }
  return trial;
}

/// Runs `trial` as a plan and step by step; returns what is wrong with how it ended, or "".
std::string run(const Trial& trial, Progress& progress, bool list) {
  std::string said = "a result";
  try {
    Engine engine(trial.model);
    const std::vector<Tensor> planned = engine.run(trial.inputs);
    engine.run(trial.inputs);  // once more, with the plan that is there
    Frame frame = engine.start(trial.inputs);
    frame.finish();
    const std::vector<Tensor> stepped = frame.outputs();
    for (size_t i = 0; i < planned.size(); ++i) {
      if (planned[i].type() != stepped[i].type() || planned[i].shape() != stepped[i].shape()) {
        return fmt::format("output {} is {}{} by the plan and {}{} step by step", i, name_of(planned[i].type()),
                           to_string(planned[i].shape()), name_of(stepped[i].type()), to_string(stepped[i].shape()));
      }
    }
    ++progress.ran;
  } catch (const Error& error) {
    said = error.what();
    ++progress.refused;
    for (const char* unclear : {"frame #", "Exception raised", "INTERNAL ASSERT", "_M_range_check", "basic_string"}) {
      if (said.find(unclear) != std::string::npos) return "unclear: " + said;
    }
    if (error.code() == ErrorCode::Internal) return "internal: " + said;
  } catch (const std::exception& error) {
    return fmt::format("an exception that is no kaon::Error: {}", error.what());
  }
  if (list) std::cout << "  " << printable(said) << std::endl;
  return {};
}

/// The work of a child: runs [begin, end), each named in `progress` before it begins.
void work(const std::vector<fs::path>& tests, const Options& options, int64_t begin, int64_t end, Progress& progress) {
  set_thread_count(1);
  set_memory_limit((options.memory + options.overhead) << 20);
  for (int64_t i = begin; i < end; ++i) {
    Mutator mutator(options.seed * 1'000'003 + static_cast<uint64_t>(i));
    const fs::path& test = tests[static_cast<size_t>(i * 7919) % tests.size()];
    Trial trial;
    std::string change;
    try {
      trial = load(test);
      change = mutator.mutate(trial);
    } catch (const Error&) {
      continue;  // strings, sequences and the like
    }
    change = fmt::format("{}: {}", test.filename().string(), change);
    change.resize(std::min(change.size(), sizeof(progress.change) - 1));
    std::memcpy(progress.change, change.c_str(), change.size() + 1);
    progress.run = i;
    if (options.list) std::cout << i << ' ' << printable(change) << std::endl;
    const std::string wrong = run(trial, progress, options.list);
    if (!wrong.empty()) {
      std::cout << fmt::format("run {} ({}): {}", i, printable(change), printable(wrong)) << std::endl;
      std::_Exit(3);
    }
  }
}

double resident_mib(pid_t child) {
  std::ifstream file(fmt::format("/proc/{}/statm", child));
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

/// Seconds that a child has computed, which a busy machine does not stretch.
double computed_seconds(pid_t child) {
  std::ifstream file(fmt::format("/proc/{}/stat", child));
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  std::string skipped;
  int64_t user = 0, system = 0;
  for (int i = 0; i < 11; ++i) fields >> skipped;  // state to cmajflt
  fields >> user >> system;
  return static_cast<double>(user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

/// Waits for a child and ends it where a run takes too long or too much. Says why it did, or how the child ended badly.
std::string watch(pid_t child, const Progress& progress, double most_mib) {
  using Clock = std::chrono::steady_clock;
  int64_t seen = -1;
  Clock::time_point since;
  double computed = 0;
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
      if (WIFEXITED(status) && WEXITSTATUS(status) == 3) return "told";
      return WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                 : fmt::format("exit code {}", WEXITSTATUS(status));
    }
    const auto stop = [&](std::string why) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return why;
    };
    if (progress.run != seen) {
      seen = progress.run;
      since = Clock::now();
      computed = computed_seconds(child);
    }
    const double waited = std::chrono::duration<double>(Clock::now() - since).count();
    if (waited > kLongestSeconds && computed_seconds(child) - computed > kLongestSeconds) {
      return stop(fmt::format("more than {} s", kLongestSeconds));
    }
    if (waited > kLongestWait) return stop(fmt::format("no end after {} s", kLongestWait));
    if (resident_mib(child) > most_mib) return stop(fmt::format("more than {} MiB", most_mib));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

int check(const Options& options) {
  const std::vector<fs::path> tests = find_tests(options);
  if (tests.empty()) fail(ErrorCode::InvalidInput, options.data.string(), "no tests match '{}'", options.filter);
  void* shared = ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) fail(ErrorCode::Io, "mmap", "no memory to share with a child");
  auto& progress = *new (shared) Progress;
  int64_t wrong = 0;
  const int64_t last = options.first + options.runs;
  for (int64_t begin = options.first; begin < last;) {
    const int64_t end = std::min(begin + kRunsPerChild, last);
    progress.run = begin;
    progress.change[0] = 0;
    std::cout.flush();
    const pid_t child = ::fork();
    if (child < 0) fail(ErrorCode::Io, "fork", "no child process");
    if (child == 0) {
      work(tests, options, begin, end, progress);
      std::cout.flush();
      std::_Exit(0);
    }
    const std::string why = watch(child, progress, kMostMemory + static_cast<double>(options.overhead));
    if (why.empty()) {
      begin = end;
      continue;
    }
    ++wrong;
    if (why != "told") {
      std::cout << fmt::format("run {} ({}): {}", progress.run.load(), printable(progress.change), why) << std::endl;
    }
    begin = progress.run + 1;
  }
  std::cout << fmt::format("{} runs of {} tests: {} gave results, {} errors, {} went wrong\n", options.runs,
                           tests.size(), progress.ran.load(), progress.refused.load(), wrong);
  return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Runs the ONNX project's own tests with something changed in each");
  app.add_option("--data", options.data, "the folder with node/ and simple/")->required();
  app.add_option("--runs", options.runs, "how many");
  app.add_option("--first", options.first, "the number of the first");
  app.add_option("--seed", options.seed, "of all changes");
  app.add_option("--filter", options.filter, "only tests whose name matches");
  app.add_option("--memory", options.memory, "MiB that a run may ask for");
  app.add_option("--overhead", options.overhead, "MiB that an instrumented program takes by itself");
  app.add_flag("--list", options.list, "say what was changed and what came of it");
  CLI11_PARSE(app, argc, argv);
  try {
    return check(options);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
