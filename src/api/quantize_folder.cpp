#include "api/quantize_folder.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "api/folder_journal.h"
#include "api/folder_plan.h"
#include "api/folder_writer.h"
#include "api/language_parts.h"
#include "api/load_model.h"
#include "base/atomic_folder.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/memory_usage.h"
#include "base/parallel.h"
#include "base/recycled_memory.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "graph/stored.h"
#include "lm/hidden_states.h"
#include "quant/describe.h"
#include "quant/quantize.h"
#include "quant/simulate.h"

namespace kaon {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kStatesInMemory = int64_t{1} << 30;

/// ‖a - b‖ / ‖a‖
double distance(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return INFINITY;
  const std::span<const float> x = a.as<float>(), y = b.as<float>();
  double lost = 0, all = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double by = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    lost += by * by;
    all += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return all > 0 ? std::sqrt(lost / all) : std::sqrt(lost);
}

Tensor run_part(Model part, const Tensor& hidden) {
  return Engine(std::move(part), Runs::Once).run({{"hidden", hidden}}).front();
}

class FolderQuantizer {
 public:
  FolderQuantizer(const fs::path& in, const fs::path& out, const DataOptions& data, const FolderOptions& options)
      : in_(in), out_(out), data_(data), options_(options), model_(lm::LanguageModel::open(in)) {}

  QuantizeReport run(const Config& config) {
    const Checkpoint checkpoint = read_checkpoint(in_);
    if (model_.config().has({"quantization_config"})) {
      fail(ErrorCode::InvalidInput, in_.string(), "is quantized already; a float checkpoint is needed");
    }
    plan_ = plan_folder(model_, checkpoint, config, options_.format, in_.string());
    AtomicFolder folder(out_, options_.resume ? AtomicFolder::Start::Resume : AtomicFolder::Start::Afresh);
    FolderJournal journal(folder.draft(), task(checkpoint), out_.string());
    FolderWriter writer(in_, folder.draft(), checkpoint, plan_);
    folder.keep();
    if (!journal.empty()) report_.notes.emplace_back("resumed: what was finished before is not done again");
    if (!journal.has(kOthers)) {
      writer.copy_others(*options_.progress);
      journal.add(kOthers);
    }
    if (learns()) {
      by_blocks(writer, checkpoint, folder.draft(), journal);
    } else {
      tensor_by_tensor(writer, journal);
      check_blocks(folder.draft());
    }
    writer.finish();
    report_.bytes_before = model_.bytes();
    report_.bytes_after = writer.bytes();
    journal.remove();
    folder.commit();
    for (const FolderLayer& layer : plan_.layers) {
      report_.layers.push_back(layer.name);
      report_.quantizers += layer.input ? 2 : 1;
    }
    report_.skipped = plan_.skipped;
    report_.notes.insert(report_.notes.begin(), plan_.notes.begin(), plan_.notes.end());
    return std::move(report_);
  }

 private:
  static constexpr const char* kOthers = "others";  ///< tensors that stay as they are

  bool learns() const { return needs_calibration(plan_.config) || !plan_.config.algorithms.empty(); }

  /// All that decides the bytes of the folder, in a line.
  std::string task(const Checkpoint& checkpoint) const {
    nlohmann::ordered_json json{{"method", plan_.method}, {"config", to_json(plan_.config)}};
    json["layers"] = quantization_config(plan_);
    const auto add = [&](const fs::path& file) {
      std::error_code error;
      json["files"][file.string()] = {fs::file_size(file, error),
                                      fs::last_write_time(file, error).time_since_epoch().count()};
    };
    for (const auto& [name, at] : checkpoint) add(at.file);
    if (!learns()) return json_text(json);
    const fs::path text = data_.calib.empty() ? data_.data : data_.calib;
    if (!text.empty()) add(text);
    json["samples"] = {data_.limit, data_.calib_limit, data_.batch};
    return json_text(json);
  }

  void tensor_by_tensor(FolderWriter& writer, FolderJournal& journal) {
    const int64_t count = std::ssize(plan_.layers);
    options_.progress->begin("layers", count);
    int64_t done = 0;
    std::mutex mutex;
    std::atomic<bool> stopped = false;
    const auto write = [&](int64_t first, int64_t last) {
      try {
        for (int64_t i = first; i < last && !stopped; ++i) {
          const FolderLayer& layer = plan_.layers[static_cast<size_t>(i)];
          std::unique_lock lock(mutex);
          if (!journal.has(layer.name)) {
            lock.unlock();
            writer.write_weight(layer);
            lock.lock();
            journal.add(layer.name);
          }
          options_.progress->at(++done);
        }
      } catch (...) {
        stopped = true;
        throw;
      }
    };
    // Writers to one file wait for each other. Layers that lie together, as each thread takes them, are in different
    // files of a large model. One that is not coded by rows takes much memory.
    if (std::ranges::all_of(plan_.layers, goes_by_rows)) {
      parallel_for(0, count, 1, write);
    } else {
      write(0, count);
    }
    options_.progress->end();
  }

  void by_blocks(FolderWriter& writer, const Checkpoint& checkpoint, const fs::path& draft, FolderJournal& journal) {
    if (!model_.facts().causal) {
      fail(ErrorCode::Unsupported, in_.string(), "{} is an encoder; what learns from data needs a model of tokens",
           model_.family_name());
    }
    const Model embedding = model_.embedding();
    const std::unique_ptr<Dataset> data = open_calibration(data_, embedding.graph);
    if (data == nullptr) {
      fail(ErrorCode::InvalidConfig, in_.string(), "this scheme or algorithm learns from data; give --calib TEXT");
    }
    const Stopwatch watch;
    const int64_t in_memory = options_.memory_mb > 0 ? options_.memory_mb << 20 : kStatesInMemory;
    lm::HiddenStates states(Engine(embedding), *data, data_.batch, in_memory);
    report_.calibration.samples = data->size();
    // The weights that later blocks see are those of the file, so that a run that goes on sees the same.
    const lm::LanguageModel file = lm::LanguageModel::open(draft);
    const int64_t blocks = model_.facts().layers;
    const int64_t parts = config_of_part(plan_.config, model_.head().graph) ? blocks + 1 : blocks;
    double worst = 0;
    options_.progress->begin("blocks", blocks);
    for (int64_t i = 0; i < parts; ++i) {
      const std::string name = i < blocks ? fmt::format("block {}", i) : "head";
      Model part = i < blocks ? model_.block(i) : model_.head();
      const std::optional<Config> own = config_of_part(plan_.config, part.graph);
      const bool fresh = own && !journal.has(name);
      if (fresh) {
        QuantizeSettings settings;
        settings.batch = states.at_once(data_.batch);
        const QuantizedModel quantized = quantize(std::move(part), *own, &states, settings);
        write_block(quantized, writer, checkpoint);
        add_algorithms(quantized);
        const Tensor hidden = states.read(0, std::min(settings.batch, data->size())).inputs.at("hidden");
        const Model stored = i < blocks ? file.block(i) : file.head();
        worst = std::max(worst, distance(run_part(simulate(quantized), hidden), run_part(stored, hidden)));
        journal.add(name);
      }
      if (i + 1 < parts) {  // nobody reads what the last one makes
        Engine block(file.block(i));
        states.advance([&](const TensorMap& inputs) { return block.run(inputs); }, data_.batch);
      }
      options_.progress->at(std::min(i + 1, blocks));
    }
    options_.progress->end();
    // Constants that algorithms changed are rounded to the type of the file.
    expect_near(worst, changed_constants_ ? 0.02 : 0.002, "each block's outputs");
    report_.calibration.seconds = watch.seconds();
  }

  void add_algorithms(const QuantizedModel& quantized) {
    for (const AlgorithmReport& of_block : quantized.algorithms) {
      auto found = std::ranges::find(report_.algorithms, of_block.name, &AlgorithmReport::name);
      if (found == report_.algorithms.end()) {
        report_.algorithms.push_back(of_block);
        continue;
      }
      found->changed += of_block.changed;
      found->seconds += of_block.seconds;
      found->notes.insert(found->notes.end(), of_block.notes.begin(), of_block.notes.end());
    }
  }

  /// The layers of a block, and whatever else algorithms changed in it.
  void write_block(const QuantizedModel& quantized, FolderWriter& writer, const Checkpoint& checkpoint) {
    std::set<std::string> coded;
    for (const FolderLayer& layer : plan_.layers) {
      const Quantizer* weight = quantized.find(layer.name, Slot::Weight);
      if (weight == nullptr) continue;
      writer.write_weight(layer, widened(constant_of(quantized, weight->tensor)).as<float>(), weight->params);
      coded.insert(weight->tensor);
      if (layer.input && !layer.dynamic) {
        writer.write_input(layer, quantized.find(layer.name, Slot::Input)->params);
      }
    }
    const std::string prefix = lm::families().get(model_.family_name()).prefix;
    for (const Initializer& constant : quantized.model.graph.initializers) {
      const Tensor& now = constant_of(quantized, constant.name);
      const Initializer* before = quantized.original.graph.find_initializer(constant.name);
      if (coded.contains(constant.name)) continue;
      if (before != nullptr && std::ranges::equal(before->tensor.bytes(), now.bytes())) continue;
      std::string name = constant.name;
      if (!checkpoint.contains(name) && name.starts_with(prefix)) name = name.substr(prefix.size());
      const auto stored = checkpoint.find(name);
      if (stored == checkpoint.end() || stored->second.tensor.shape() != now.shape()) {
        fail(ErrorCode::Unsupported, constant.name, "an algorithm changed it, and the files have no place for it");
      }
      writer.write_values(name, now.to_float());
      changed_constants_ = true;
    }
  }

  /// The first and the last block of the file must make of arbitrary tokens what those in memory do.
  void check_blocks(const fs::path& draft) {
    if (!model_.facts().causal) return;
    const lm::LanguageModel file = lm::LanguageModel::open(draft);
    constexpr int64_t kTokens = 4;
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 2 * kTokens; ++i) ids.push_back((i * 7919 + 13) % model_.facts().vocabulary);
    const Tensor hidden = Engine(file.embedding()).run({{"input_ids", Tensor::of<int64_t>({2, kTokens}, ids)}}).front();
    double worst = 0;
    const Recycling recycling;  // blocks are much alike
    for (const int64_t i : std::set<int64_t>{0, model_.facts().layers - 1}) {
      Model block = model_.block(i);
      const std::optional<Config> own = config_of_part(plan_.config, block.graph);
      if (own) block = simulate(quantize(std::move(block), *own));
      const Tensor expected = run_part(std::move(block), hidden);  // one block in memory at a time
      worst = std::max(worst, distance(expected, run_part(file.block(i), hidden)));
    }
    expect_near(worst, 0.002, "first and last block");
  }

  void expect_near(double found, double bound, const std::string& what) {
    if (!(found <= bound)) {
      fail(ErrorCode::Internal, out_.string(), "what was written does not give what was simulated: {} differ by {:.2g}",
           what, found);
    }
    report_.notes.push_back(fmt::format("read back: {} agree with the simulation to {:.1e}", what, found));
  }

  fs::path in_, out_;
  const DataOptions& data_;
  const FolderOptions& options_;
  lm::LanguageModel model_;
  FolderPlan plan_;
  QuantizeReport report_;
  bool changed_constants_ = false;
};

Metrics measured(const fs::path& model, const DataOptions& data, const FolderOptions& options,
                 const fs::path& reference = {}) {
  EvalOptions eval;
  eval.model = model;
  eval.data = data;
  eval.reference = reference;
  eval.metrics = {"ppl", "loss", "top1"};
  if (!reference.empty()) eval.metrics.insert(eval.metrics.end(), {"sqnr_db", "agreement"});
  eval.memory_mb = options.memory_mb;
  eval.progress = options.progress;
  return eval_model(eval).metrics;
}

}  // namespace

std::string format_of_output(const fs::path& output) {
  if (output.extension() == ".gguf") return "gguf";
  return output.extension() == ".onnx" ? "onnx" : "compressed-tensors";
}

QuantizeReport quantize_folder(const fs::path& in, const fs::path& out, const Config& config, const DataOptions& data,
                               const FolderOptions& asked) {
  const Stopwatch watch;
  FolderOptions options = asked;
  if (options.format.empty()) options.format = format_of_output(out);
  const std::vector<std::string> known = folder_methods();
  if (std::ranges::find(known, options.format) == known.end()) {
    fail(ErrorCode::InvalidConfig, "--format", "'{}' is not known; {}, gguf and onnx are", options.format,
         fmt::join(known, ", "));
  }
  if (!lm::LanguageModel::is_folder(in)) {
    fail(ErrorCode::InvalidInput, in.string(), "the folder of a language model is needed, with a config.json");
  }
  std::error_code error;
  if (fs::equivalent(in, out, error)) fail(ErrorCode::InvalidInput, out.string(), "is the folder that is read");
  DataOptions text = data;
  if (!text.tokenizer) text.tokenizer = tokenizer_of(in);
  QuantizeReport report = FolderQuantizer(in, out, text, options).run(config);
  if (!text.data.empty()) {
    report.metrics_before = measured(in, text, options);
    report.metrics_after = measured(out, text, options, in);
  }
  report.scheme = config.scheme;
  report.calib_unused = !text.calib.empty() && report.calibration.samples == 0;
  report.seconds = watch.seconds();
  report.peak_mb = peak_memory_mb();
  return report;
}

}  // namespace kaon
