#include "api/folder_writer.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/parallel.h"
#include "graph/stored.h"
#include "io/quantized/compressed_tensors.h"
#include "numerics/half.h"

namespace kaon {

namespace ct = compressed_tensors;
namespace fs = std::filesystem;

namespace {

constexpr const char* kConfig = "config.json";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kAtATime = 1 << 18;  ///< elements that one thread takes at a time

DType float_type(ScaleType type) {
  if (type == ScaleType::Float16) return DType::Float16;
  return type == ScaleType::BFloat16 ? DType::BFloat16 : DType::Float32;
}

FloatView view_of(const Tensor& tensor, const std::string& name, const std::string& where) {
  if (is_float(tensor)) return float_view(tensor);
  fail(ErrorCode::Unsupported, where, "the tensor '{}' is {}; float32, float16 and bfloat16 can be quantized", name,
       name_of(tensor.type()));
}

int64_t size_of(FloatView::Type type) { return type == FloatView::Type::Float32 ? 4 : 2; }

/// What a layer's quantized input adds: "input_scale" and maybe "input_zero_point".
std::vector<ct::Part> input_parts(const FolderLayer& layer) {
  if (!layer.input || layer.dynamic) return {};
  const Shape shape = layer.layout == "quark" ? Shape{} : Shape{1};
  std::vector<ct::Part> parts{{"input_scale", float_type(layer.input->scale_type), shape, 0}};
  const bool zero = format(layer.input->format).kind == FormatKind::Integer && !layer.input->symmetric;
  if (zero) parts.push_back({"input_zero_point", DType::Int8, shape, 0});
  return parts;
}

std::vector<std::byte> as_type(std::span<const float> values, DType type) {
  std::vector<std::byte> bytes(static_cast<size_t>(stored_bytes(type, std::ssize(values))));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::Float32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t half = type == DType::Float16 ? float32_to_float16(values[i]) : float32_to_bfloat16(values[i]);
      std::memcpy(bytes.data() + 2 * i, &half, 2);
    }
  }
  return bytes;
}

/// Weights in any form, which a quantized folder must not carry along.
bool holds_weights(const fs::path& file) {
  static const std::set<std::string> kinds{".safetensors", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".gguf", ".npz"};
  const std::string name = file.filename().string();
  return kinds.contains(file.extension().string()) || name.starts_with("pytorch_model") || name == kIndex ||
         name == kConfig || name == ".kaon_files";
}

nlohmann::ordered_json read_json(const fs::path& path) {
  const auto file = MappedFile::open(path);
  return parse_json<nlohmann::ordered_json>({reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()},
                                            path.string());
}

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace

FolderWriter::FolderWriter(const fs::path& from, const fs::path& draft, const Checkpoint& checkpoint,
                           const FolderPlan& plan)
    : checkpoint_(checkpoint) {
  std::map<std::string, const FolderLayer*> by_tensor;
  for (const FolderLayer& layer : plan.layers) {
    by_tensor[layer.tensor()] = &layer;
    coded_.insert(layer.tensor());
  }
  std::map<std::string, std::vector<PlannedTensor>> shards;
  for (const auto& [name, at] : checkpoint) {
    std::vector<PlannedTensor>& shard = shards[at.file.string()];
    const auto layer = by_tensor.find(name);
    if (layer == by_tensor.end()) {
      shard.push_back({name, at.tensor.type(), at.tensor.shape()});
      continue;
    }
    for (const auto& parts : {parts_of(*layer->second), input_parts(*layer->second)}) {
      for (const ct::Part& part : parts)
        shard.push_back({layer->second->module + "." + part.suffix, part.type, part.shape});
    }
  }
  nlohmann::ordered_json index;
  int64_t total = 0;
  for (auto& [file, tensors] : shards) {
    const std::string name = fs::path(file).filename().string();
    for (const PlannedTensor& tensor : tensors) {
      index["weight_map"][tensor.name] = name;
      total += stored_bytes(tensor.type, element_count(tensor.shape));
    }
    shards_[file] = std::make_unique<SafetensorsDraft>(draft / name, std::move(tensors));
  }
  if (fs::exists(from / kIndex)) {
    index["metadata"] = {{"total_size", total}};
    write_text(draft / kIndex, json_text(index, 2) + "\n");
  }
  nlohmann::ordered_json config = read_json(from / kConfig);
  config["quantization_config"] = quantization_config(plan);
  write_text(draft / kConfig, json_text(config, 2) + "\n");
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (!entry.is_regular_file() || holds_weights(entry.path())) continue;
    std::error_code error;
    fs::copy_file(entry.path(), draft / entry.path().filename(), fs::copy_options::overwrite_existing, error);
    if (error) fail(ErrorCode::Io, entry.path().string(), "cannot be copied: {}", error.message());
    fs::permissions(draft / entry.path().filename(), fs::perms::owner_write, fs::perm_options::add, error);
  }
}

void FolderWriter::write_parts(const FolderLayer& layer, const CodedMatrix& matrix, int64_t first_row) {
  const std::vector<ct::Part> parts = parts_of(layer);
  const auto bytes = encode(layer, matrix);
  SafetensorsDraft& shard = shard_of(layer.tensor());
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = layer.module + "." + parts[i].suffix;
    if (parts[i].suffix == "weight_shape") {
      if (first_row == 0) shard.write(name, 0, std::as_bytes(std::span(layer.shape)));
    } else if (parts[i].row_bits > 0 || first_row == 0) {
      shard.write(name, first_row * parts[i].row_bits / 8, bytes[i]);
    }
  }
}

void FolderWriter::write_weight(const FolderLayer& layer) {
  const CheckpointTensor& stored = checkpoint_.at(layer.tensor());
  const FloatView values = view_of(stored.tensor, layer.tensor(), stored.file.string());
  const int64_t rows = layer.shape[0], cols = layer.shape[1];
  const MatrixRange range = range_of(values, rows, cols, layer.weight);
  const int64_t steps = std::max<int64_t>(1, kAtATime / std::max<int64_t>(1, cols * ct::kRowStep));
  const int64_t chunk = goes_by_rows(layer) ? steps * ct::kRowStep : std::max<int64_t>(1, rows);
  parallel_for(0, (rows + chunk - 1) / chunk, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i * chunk, count = std::min(chunk, rows - first);
      const auto* data = static_cast<const std::byte*>(values.data) + first * cols * size_of(values.type);
      write_parts(layer, encode_rows({data, count * cols, values.type}, count, cols, layer.weight, range), first);
    }
  });
}

void FolderWriter::write_weight(const FolderLayer& layer, std::span<const float> values, const QuantParams& params) {
  write_parts(layer, encode_matrix(values, layer.shape[0], layer.shape[1], layer.weight, params), 0);
}

void FolderWriter::write_input(const FolderLayer& layer, const QuantParams& params) {
  SafetensorsDraft& shard = shard_of(layer.tensor());
  for (const ct::Part& part : input_parts(layer)) {
    const std::string name = layer.module + "." + part.suffix;
    if (part.suffix == "input_scale") {
      shard.write(name, 0, as_type(std::span(params.scale).first(1), part.type));
      continue;
    }
    const Format& kind = format(layer.input->format);
    const int32_t zero = params.zero_point.empty() ? 0 : params.zero_point.front();
    const auto moved = static_cast<int8_t>(zero - (kind.is_signed ? 0 : 1 << (kind.bits - 1)));
    shard.write(name, 0, std::as_bytes(std::span(&moved, 1)));
  }
}

void FolderWriter::write_values(const std::string& tensor, std::span<const float> values) {
  shard_of(tensor).write(tensor, 0, as_type(values, checkpoint_.at(tensor).tensor.type()));
}

void FolderWriter::copy_others(Progress& progress) {
  // By file: writers to one wait for each other.
  std::map<std::string, std::vector<std::string>> by_file;
  for (const auto& [name, at] : checkpoint_) {
    if (!coded_.contains(name)) by_file[at.file.string()].push_back(name);
  }
  std::vector<std::string> files;
  for (const auto& [file, tensors] : by_file) files.push_back(file);
  progress.begin("copying", std::ssize(files));
  std::mutex mutex;
  int64_t done = 0;
  parallel_for(0, std::ssize(files), 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const std::string& file = files[static_cast<size_t>(i)];
      for (const std::string& name : by_file.at(file)) shards_.at(file)->copy(name, checkpoint_.at(name));
      const std::lock_guard lock(mutex);
      progress.at(++done);
    }
  });
  progress.end();
}

void FolderWriter::finish() {
  for (const auto& [file, shard] : shards_) shard->finish();
}

int64_t FolderWriter::bytes() const {
  int64_t sum = 0;
  for (const auto& [file, shard] : shards_) sum += shard->bytes();
  return sum;
}

}  // namespace kaon
