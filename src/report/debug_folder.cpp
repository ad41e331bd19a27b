#include "report/debug_folder.h"

#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "report/charts.h"
#include "report/debug_tables.h"
#include "report/html.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 160;  // leaves room for what is put behind it in 255 bytes

/// Layer names as file names: what a file system or a shell may stumble over becomes "_", and no two become one.
class FileNames {
 public:
  const std::string& of(const std::string& layer) {
    std::string& name = names_[layer];
    if (!name.empty()) return name;
    std::string safe = layer.substr(0, kLongestName);
    const std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-#+=@";
    for (char& c : safe) c = allowed.find(c) == std::string_view::npos ? '_' : c;
    if (safe.empty() || safe[0] == '.' || safe[0] == '-') safe.insert(0, 1, '_');
    name = safe;
    for (int i = 2; !taken_.insert(name).second; ++i) name = fmt::format("{}~{}", safe, i);
    return name;
  }

 private:
  std::map<std::string, std::string> names_;
  std::set<std::string> taken_;
};

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  stream.flush();
  if (!stream) fail(ErrorCode::Io, path.filename().string(), "cannot be written; is the disk full?");
}

std::string subtitle_of(const QuantizerDebug& quantizer) {
  std::string text = quantizer.description;
  constexpr std::string_view kWord = "FakeQuantize ";
  if (text.starts_with(kWord)) text.erase(0, kWord.size());
  return text;
}

struct Series {
  const char* name = "";
  const Histogram* histogram = nullptr;
};

/// Everything that is drawn, as a list of work for several threads.
class Pictures {
 public:
  Pictures(const DebugReport& report, fs::path folder, FileNames& names)
      : report_(report), folder_(std::move(folder)), names_(names) {
    for (const DebugRow* row : report.in_order()) add(*row);
    add_summaries();
  }

  int64_t draw(Progress& progress) {
    const int64_t count = std::ssize(jobs_);
    progress.begin("drawing", count);
    std::mutex mutex;
    int64_t done = 0;
    parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        jobs_[static_cast<size_t>(i)]();
        const std::lock_guard lock(mutex);
        progress.at(++done);
      }
    });
    progress.end();
    return count;
  }

 private:
  void add(const DebugRow& row) {
    const QuantizerDebug& quantizer = report_.of(row);
    const std::string layer = names_.of(row.layer);
    std::string slot(name_of(row.slot));
    // An operator that reads several values has several inputs.
    const int times = ++slots_[layer + "." + slot];
    if (times > 1) slot += fmt::format("#{}", times);
    const std::string stem = layer + "." + slot;
    const std::string title = row.layer + " " + slot;
    if (!is_activation(row)) {
      histogram(stem + ".png", title, quantizer,
                {{"float", &quantizer.input_histogram}, {"quantized", &quantizer.output_histogram}});
      return;
    }
    if (quantizer.input_histogram.count() == 0 && quantizer.reference_histogram.count() == 0) return;
    histogram(stem + "_histogram.png", title + ", quantized model", quantizer, {{"", &quantizer.input_histogram}});
    histogram(stem + "_qdq_histogram.png", title + ", quantized", quantizer, {{"", &quantizer.output_histogram}});
    histogram(stem + "_ref_histogram.png", title + ", float model", quantizer, {{"", &quantizer.reference_histogram}});
    means(stem + "_ref_histogram_absmean_ch0.png", title + ", float model", "mean |value| of a channel", quantizer,
          quantizer.reference_absmean_rows);
    means(stem + "_ref_histogram_absmean_ch1.png", title + ", float model", "mean |value| of a row", quantizer,
          quantizer.reference_absmean_channels);
  }

  static bool is_activation(const DebugRow& row) { return row.slot == Slot::Input || row.slot == Slot::Output; }

  void histogram(const std::string& file, const std::string& title, const QuantizerDebug& quantizer,
                 const std::vector<Series>& all) {
    jobs_.emplace_back([this, file, title, &quantizer, all] {
      HistogramChart chart;
      chart.title = title;
      chart.subtitle = subtitle_of(quantizer);
      for (const Series& series : all) {
        const bool quantized = series.histogram == &quantizer.output_histogram;
        chart.series.push_back(histogram_series(series.name, *series.histogram, quantized ? quantizer.step : 0));
      }
      if (const Histogram& data = *all.front().histogram; data.count() > 0) {
        chart.min = data.min();
        chart.max = data.max();
      }
      if (quantizer.representable) {
        chart.clip_low = quantizer.representable->min;
        chart.clip_high = quantizer.representable->max;
      }
      draw_histogram(chart, folder_ / file);
    });
  }

  void means(const std::string& file, const std::string& title, const char* label, const QuantizerDebug& quantizer,
             const Histogram& histogram) {
    jobs_.emplace_back([this, file, title, label, &quantizer, &histogram] {
      HistogramChart chart;
      chart.title = title;
      chart.subtitle = subtitle_of(quantizer);
      chart.x_label = label;
      chart.series.push_back(histogram_series("", histogram));
      if (histogram.count() > 0) {
        chart.min = histogram.min();
        chart.max = histogram.max();
      }
      draw_histogram(chart, folder_ / file);
    });
  }

  void bars(const char* file, const char* title, const char* subtitle, bool activations,
            const std::function<double(const QuantizerDebug&)>& value) {
    BarChart chart;
    chart.title = title;
    chart.subtitle = subtitle;
    chart.x_label = "mean relative error";
    for (const DebugRow* row : report_.in_order()) {
      if (activations ? !is_activation(*row) : row->slot != Slot::Weight) continue;
      const std::string name = activations ? fmt::format("{} {}", row->layer, name_of(row->slot)) : row->layer;
      chart.bars.push_back({name, value(report_.of(*row))});
    }
    jobs_.emplace_back([this, file, chart = std::move(chart)] { draw_bars(chart, folder_ / file); });
  }

  void add_summaries() {
    bars("summary_io_quantization_error.png", "What each quantizer does to what it reads",
         "mean |output - input| / |input| of the quantizer", true,
         [](const QuantizerDebug& q) { return q.mean_relative_error(); });
    bars("summary_ref_input_error.png", "The error that arrives at each quantizer",
         "mean |input - float model| / |float model|; zeros of the float model blow it up: cumulative_error does not "
         "mind",
         true, [](const QuantizerDebug& q) { return q.ref_input.mean_relative_error(); });
    bars("summary_ref_output_error.png", "The error that leaves each quantizer",
         "mean |output - float model| / |float model|; zeros of the float model blow it up: cumulative_error does not "
         "mind",
         true, [](const QuantizerDebug& q) { return q.ref_output.mean_relative_error(); });
    bars("summary_weight_error.png", "What quantization does to each weight",
         "mean |quantized - float| / |float| of the weight", false,
         [](const QuantizerDebug& q) { return q.mean_relative_error(); });
  }

  const DebugReport& report_;
  fs::path folder_;
  FileNames& names_;
  std::map<std::string, int> slots_;
  std::vector<std::function<void()>> jobs_;
};

}  // namespace

void check_debug_folder(const fs::path& folder, bool force) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    fail(ErrorCode::InvalidInput, folder.string(), "is a file, not a folder");
  }
  AtomicFolder::check(folder);
  if (!force && fs::exists(folder, error) && !AtomicFolder::is_empty(folder)) {
    fail(ErrorCode::InvalidInput, folder.string(),
         "holds files already; name another folder, or allow it with --force");
  }
}

int64_t write_debug_folder(const DebugReport& report, const fs::path& folder, bool force, Progress& progress) {
  check_debug_folder(folder, force);
  AtomicFolder out(folder);
  FileNames names;
  const int64_t pictures = Pictures(report, out.draft(), names).draw(progress);
  for (const DebugRow& row : report.rows) {
    if (row.slot != Slot::Weight) continue;
    write_text(out.draft() / (names.of(row.layer) + ".weight_stats.json"),
               json_text(weight_stats_json(report, row), 1) + "\n");
  }
  write_text(out.draft() / "summary.csv", to_csv(report));
  write_html(report, out.draft() / "report.html");
  write_text(out.draft() / "summary.json", json_text(to_json(report), 1) + "\n");
  out.commit();
  return pictures;
}

}  // namespace kaon
