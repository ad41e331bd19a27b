// Text as windows of tokens: what a language model is calibrated and evaluated on.
#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "data/description.h"

namespace kaon {

namespace {

constexpr int64_t kWindow = 512;
constexpr int64_t kMost = int64_t{1} << 31;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// The texts under `key` of each line's object, with an empty line between them.
std::string join_documents(std::string_view lines, const std::string& key, const std::string& where) {
  std::string text;
  int64_t number = 0;
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains(key) || !object[key].is_string()) {
      fail(ErrorCode::CorruptFile, where, "line {} is no JSON object with a text \"{}\"", number, key);
    }
    if (!text.empty()) text += "\n\n";
    text += object[key].get_ref<const std::string&>();
  }
  return text;
}

void append_file(const std::filesystem::path& path, const std::string& key, const Tokenizer& tokenizer, TokenIds& ids) {
  const std::string where = path.string();
  const auto file = MappedFile::open(path);
  const bool lines = path.extension() == ".jsonl";
  const std::string joined = lines ? join_documents(text_of(*file), key, where) : std::string();
  try {
    const TokenIds more = tokenizer.encode(lines ? std::string_view(joined) : text_of(*file), false);
    ids.insert(ids.end(), more.begin(), more.end());
  } catch (const Error& error) {
    throw Error(error.code(), error.what(), where);
  }
}

/// Inputs beside the tokens that follow from the window alone.
enum class Beside { Ones, Positions, Zeros };

struct BesideInput {
  std::string name;
  DType type;
  Beside kind;
};

class TextWindows : public Dataset {
 public:
  TextWindows(TokenIds ids, int64_t window, int64_t stride, std::string input, DType type,
              std::vector<BesideInput> beside, Selection selection)
      : ids_(std::move(ids)),
        window_(window),
        stride_(stride),
        input_(std::move(input)),
        type_(type),
        beside_(std::move(beside)),
        selection_(selection) {}

  int64_t size() const override { return selection_.count; }
  bool has_labels() const override { return true; }

  Batch read(int64_t first, int64_t count) const override {
    check_range(first, count, size());
    const Shape shape{count, window_};
    std::vector<int64_t> tokens, labels;
    for (int64_t i = 0; i < count; ++i) {
      const auto begin = ids_.begin() + (selection_.first + first + i) * stride_;
      tokens.insert(tokens.end(), begin, begin + window_);
      labels.insert(labels.end(), begin + 1, begin + window_);
      labels.push_back(kIgnoredLabel);
    }
    Batch batch;
    batch.inputs[input_] = convert(Tensor::of<int64_t>(shape, tokens), type_);
    for (const BesideInput& input : beside_) {
      std::vector<int64_t> values(tokens.size(), input.kind == Beside::Ones ? 1 : 0);
      for (size_t i = 0; input.kind == Beside::Positions && i < values.size(); ++i) {
        values[i] = static_cast<int64_t>(i) % window_;
      }
      batch.inputs[input.name] = convert(Tensor::of<int64_t>(shape, values), input.type);
    }
    batch.labels = Tensor::of<int64_t>(shape, labels);
    return batch;
  }

 private:
  TokenIds ids_;
  int64_t window_, stride_;
  std::string input_;
  DType type_;
  std::vector<BesideInput> beside_;
  Selection selection_;
};

/// The input that takes the tokens: the one that is named, the only one, or "input_ids".
const ValueInfo& token_input(const Description& description, const std::vector<ValueInfo>& inputs) {
  const bool unnamed = !description.has("input") && inputs.size() > 1;
  return unnamed ? find_input(inputs, "input_ids", description.where()) : description.input(inputs);
}

std::vector<BesideInput> inputs_beside(const std::vector<ValueInfo>& inputs, const ValueInfo& tokens, int64_t window,
                                       const std::string& where) {
  std::vector<BesideInput> beside;
  for (const ValueInfo& input : inputs) {
    if (input.name == tokens.name) continue;
    const DType type = check_fits(DType::Int64, {window}, input, where, "'" + input.name + "'");
    if (input.name == "attention_mask") {
      beside.push_back({input.name, type, Beside::Ones});
    } else if (input.name == "position_ids") {
      beside.push_back({input.name, type, Beside::Positions});
    } else if (input.name == "token_type_ids") {
      beside.push_back({input.name, type, Beside::Zeros});
    } else {
      fail(ErrorCode::InvalidInput, where,
           "text gives tokens, attention_mask, position_ids and token_type_ids, but not the model's input '{}'",
           input.name);
    }
  }
  return beside;
}

}  // namespace

std::unique_ptr<Dataset> open_text(const Description& description, const std::vector<ValueInfo>& inputs,
                                   const DatasetOptions& options) {
  description.check_keys({"text", "key", "window", "stride", "input", "first", "limit"});
  const std::string& where = description.where();
  const std::vector<std::filesystem::path> files = description.files("text");
  const std::string key = description.text("key", "text");
  const int64_t window = description.integer("window", kWindow, 2, kMost);
  const int64_t stride = description.integer("stride", window, 1, kMost);
  const ValueInfo& input = token_input(description, inputs);
  const DType type = check_fits(DType::Int64, {window}, input, where, "a window of tokens");
  std::vector<BesideInput> beside = inputs_beside(inputs, input, window, where);
  const TokenizerPtr tokenizer = options.tokenizer ? options.tokenizer() : nullptr;
  if (!tokenizer) {
    fail(ErrorCode::InvalidInput, where,
         "text needs the model's tokenizer, and this model has none; a Hugging Face folder or a .gguf has");
  }
  TokenIds ids;
  for (const std::filesystem::path& file : files) append_file(file, key, *tokenizer, ids);
  const int64_t windows = std::ssize(ids) < window ? 0 : (std::ssize(ids) - window) / stride + 1;
  if (windows == 0) {
    fail(ErrorCode::InvalidInput, where, "the text has {} tokens, which do not fill a window of {}", ids.size(),
         window);
  }
  const Selection selection = description.select(windows, options);
  return std::make_unique<TextWindows>(std::move(ids), window, stride, input.name, type, std::move(beside), selection);
}

}  // namespace kaon
