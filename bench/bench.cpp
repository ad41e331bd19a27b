// The main() of every benchmark: --filter, --json, a table; each result is checked before it is timed.
#include "bench.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"

namespace kaon::bench {

namespace {

constexpr double kSampleSeconds = 2e-3;  // shorter calls are repeated within one sample
constexpr double kCaseSeconds = 0.8;
constexpr size_t kMinSamples = 7;
constexpr size_t kMaxSamples = 101;
constexpr double kBlockSeconds = 0.1;  // of runs in a row beside a peer in another process
constexpr double kSpinSeconds = 0.01;
constexpr std::chrono::milliseconds kRest{150};
constexpr int kBlocks = 9;

struct Timing {
  double median = 0;
  double spread = 0;  // interquartile range / median
};

struct Row {
  std::string name, peer_name, unit;
  double kaon = 0, peer = 0, ratio = 0;
  double kaon_spread = 0, peer_spread = 0;
};

Cases& all_cases() {
  static Cases cases;
  return cases;
}

double seconds_of(const std::function<void()>& call, int repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

int repeats_for(const std::function<void()>& call) {
  const double once = std::max(seconds_of(call, 1), 1e-8);
  return static_cast<int>(std::clamp(kSampleSeconds / once, 1.0, 1e5));
}

Timing summarize(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) { return seconds[static_cast<size_t>(share * (seconds.size() - 1) + 0.5)]; };
  return {at(0.5), (at(0.75) - at(0.25)) / at(0.5)};
}

struct Seconds {
  std::vector<double> kaon, peer;
};

/// Kaon and its peer alternate, so that both see the same machine.
Seconds alternate(const Work& work) {
  const int kaon_repeats = repeats_for(work.kaon);
  const int peer_repeats = work.peer ? repeats_for(work.peer) : 0;
  Seconds seconds;
  const auto start = std::chrono::steady_clock::now();
  double spent = 0;
  while (seconds.kaon.size() < kMaxSamples && (seconds.kaon.size() < kMinSamples || spent < kCaseSeconds)) {
    seconds.kaon.push_back(seconds_of(work.kaon, kaon_repeats));
    if (work.peer) seconds.peer.push_back(seconds_of(work.peer, peer_repeats));
    spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  return seconds;
}

/// The same with a peer in another process, in blocks of runs. Each block begins when the other side's threads have
/// stopped spinning, and its first runs are not counted: the caches hold the other side's data.
Seconds alternate_blocks(const Work& work) {
  const double once = std::max(seconds_of(work.kaon, 1), 1e-6);
  const int count = static_cast<int>(std::clamp(kBlockSeconds / once, 3.0, 100.0));
  const int skipped = static_cast<int>(std::clamp(kSpinSeconds / once, 1.0, 50.0));
  Seconds seconds;
  for (int block = 0; block < kBlocks; ++block) {
    std::this_thread::sleep_for(kRest);
    for (int i = 0; i < skipped; ++i) work.kaon();
    for (int i = 0; i < count; ++i) seconds.kaon.push_back(seconds_of(work.kaon, 1));
    std::this_thread::sleep_for(kRest);
    const std::vector<double> peer = work.remote_peer(skipped + count);
    seconds.peer.insert(seconds.peer.end(), peer.begin() + skipped, peer.end());
  }
  return seconds;
}

Row run(const Case& item) {
  const int threads_before = thread_count();
  if (item.threads > 0) set_thread_count(item.threads);
  const Work work = item.prepare();
  if (work.check) work.check();
  Row row{item.name, item.peer_name, item.unit};
  if (work.measure) {
    std::tie(row.kaon, row.peer) = work.measure();
    row.ratio = row.peer / row.kaon;
    set_thread_count(threads_before);
    return row;
  }
  const Seconds seconds = work.remote_peer ? alternate_blocks(work) : alternate(work);
  set_thread_count(threads_before);

  const auto value = [&](const Timing& timing) {
    return item.amount > 0 ? item.amount / timing.median : timing.median * 1e3;
  };
  const Timing kaon = summarize(seconds.kaon);
  row.kaon = value(kaon);
  row.kaon_spread = kaon.spread;
  if (!seconds.peer.empty()) {
    const Timing peer = summarize(seconds.peer);
    row.peer = value(peer);
    row.peer_spread = peer.spread;
    row.ratio = peer.median / kaon.median;
  }
  return row;
}

nlohmann::ordered_json to_json(const std::vector<Row>& rows) {
  auto records = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    nlohmann::ordered_json record{{"name", row.name}, {"kaon", row.kaon}};
    if (row.ratio > 0) {
      record["peer"] = row.peer;
      record["peer_name"] = row.peer_name;
      record["ratio"] = row.ratio;
    } else {
      record["peer"] = record["peer_name"] = record["ratio"] = nullptr;
    }
    record["unit"] = row.unit;
    record["kaon_spread"] = row.kaon_spread;
    record["peer_spread"] = row.peer_spread;
    records.push_back(std::move(record));
  }
  return records;
}

void print_row(const Row& row) {
  fmt::print("{:<44}{:>10.2f} ±{:>3.0f}%", row.name, row.kaon, row.kaon_spread * 50);
  if (row.ratio > 0) {
    fmt::print("{:>10.2f} ±{:>3.0f}%  {:<6}{:>7.2f}  {}", row.peer, row.peer_spread * 50, row.unit, row.ratio,
               row.peer_name);
  } else {
    fmt::print("{:>17}{:<6}", "", row.unit);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

int run_all(int argc, char** argv) {
  std::string filter = "*", json_file;
  CLI::App app("Checks and times Kaon beside a peer, both in the same run.");
  app.add_option("--filter", filter, "only the cases whose name matches this glob");
  auto* json = app.add_option("--json", json_file, "JSON records on stdout, or in FILE with --json=FILE");
  json->expected(0, 1);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const bool table = json->count() == 0 || !json_file.empty();

  Cases chosen;
  for (const Case& item : all_cases()) {
    if (glob_match(filter, item.name)) chosen.push_back(item);
  }
  if (chosen.empty() && !all_cases().empty()) {
    fmt::print(stderr, "--filter: no case matches '{}'; the cases are\n", filter);
    for (const Case& item : all_cases()) fmt::print(stderr, "  {}\n", item.name);
    return 2;
  }

  fmt::print(stderr, "{}\n", cpu_name());
  if (table) fmt::print("{:<44}{:>10}{:>6}{:>11}{:>7}{:<6}{:>7}\n", "", "kaon", "", "peer", "", "unit", "ratio");
  std::vector<Row> rows;
  for (const Case& item : chosen) {
    rows.push_back(run(item));
    if (table) print_row(rows.back());
  }
  if (json->count() > 0) {
    const std::string text = to_json(rows).dump(2) + "\n";
    if (json_file.empty()) {
      std::cout << text;
    } else {
      AtomicFile file(json_file);
      file.write(text);
      file.commit();
    }
  }
  return 0;
}

}  // namespace

bool add(const std::function<void(Cases&)>& define) {
  define(all_cases());
  return true;
}

}  // namespace kaon::bench

int main(int argc, char** argv) {
  try {
    return kaon::bench::run_all(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
