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

Row run(const Case& item) {
  const int threads_before = thread_count();
  if (item.threads > 0) set_thread_count(item.threads);
  const Work work = item.prepare();
  if (work.check) work.check();

  // Kaon and its peer alternate, so that both see the same machine.
  const int kaon_repeats = repeats_for(work.kaon);
  const int peer_repeats = work.peer ? repeats_for(work.peer) : 0;
  std::vector<double> kaon_seconds, peer_seconds;
  const auto start = std::chrono::steady_clock::now();
  double spent = 0;
  while (kaon_seconds.size() < kMaxSamples && (kaon_seconds.size() < kMinSamples || spent < kCaseSeconds)) {
    kaon_seconds.push_back(seconds_of(work.kaon, kaon_repeats));
    if (work.peer) peer_seconds.push_back(seconds_of(work.peer, peer_repeats));
    spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
  set_thread_count(threads_before);

  const auto value = [&](const Timing& timing) {
    return item.amount > 0 ? item.amount / timing.median : timing.median * 1e3;
  };
  const Timing kaon = summarize(kaon_seconds);
  Row row{item.name, item.peer_name, item.unit, value(kaon), 0, 0, kaon.spread, 0};
  if (work.peer) {
    const Timing peer = summarize(peer_seconds);
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
  if (chosen.empty()) {
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
