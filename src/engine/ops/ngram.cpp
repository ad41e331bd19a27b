// TfIdfVectorizer over integers.
#include <algorithm>
#include <map>

#include "engine/arith.h"
#include "engine/memory_guard.h"

namespace kaon {

namespace {

struct NgramOptions {
  bool count = true;     ///< TF: how often; IDF: whether at all
  bool weighted = true;  ///< IDF and TFIDF
  size_t shortest = 1;
  size_t longest = 1;
  int64_t skips = 0;
  int64_t width = 0;  ///< of the output
  /// The n-grams of the pool, each with its place in the output and its weight.
  std::map<std::vector<int64_t>, std::pair<int64_t, float>> pool;
};

NgramOptions read_options(const OpInfo& info) {
  const Node& node = info.node();
  NgramOptions options;
  const std::string mode = node.get_string("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF") {
    info.unsupported(fmt::format("mode '{}'; TF, IDF and TFIDF are known", mode));
  }
  options.count = mode != "IDF";
  options.weighted = mode != "TF";
  const int64_t shortest = node.get_int("min_gram_length", 1);
  const int64_t longest = node.get_int("max_gram_length", 1);
  if (shortest < 1 || longest < shortest) {
    fail(ErrorCode::InvalidInput, node.label(), "n-grams of {} to {} elements", shortest, longest);
  }
  options.shortest = static_cast<size_t>(shortest);
  options.longest = static_cast<size_t>(longest);
  options.skips = std::max<int64_t>(node.get_int("max_skip_count", 0), 0);
  if (node.find("pool_int64s") == nullptr) info.unsupported("n-grams of strings");

  const std::vector<int64_t> elements = node.get_ints("pool_int64s");
  const std::vector<int64_t> starts = node.get_ints("ngram_counts");
  const std::vector<int64_t> places = node.get_ints("ngram_indexes");
  const auto* weights = node.get_if<std::vector<float>>("weights");
  size_t id = 0;
  for (size_t n = 1; n <= starts.size(); ++n) {
    const int64_t end = n < starts.size() ? starts[n] : std::ssize(elements);
    if (starts[n - 1] < 0 || starts[n - 1] > end || end > std::ssize(elements) ||
        (end - starts[n - 1]) % static_cast<int64_t>(n) != 0) {
      fail(ErrorCode::InvalidInput, node.label(), "ngram_counts do not cut pool_int64s into whole n-grams");
    }
    for (int64_t at = starts[n - 1]; at < end; at += static_cast<int64_t>(n), ++id) {
      if (id >= places.size() || places[id] < 0 || (weights != nullptr && id >= weights->size())) {
        fail(ErrorCode::InvalidInput, node.label(), "an n-gram without its entry in ngram_indexes or weights");
      }
      const auto first = elements.begin() + at;
      options.pool.try_emplace({first, first + static_cast<int64_t>(n)}, places[id],
                               weights == nullptr ? 1.0F : (*weights)[id]);
      if (places[id] > kLargestSize) fail(ErrorCode::InvalidInput, node.label(), "ngram_indexes holds {}", places[id]);
      options.width = std::max(options.width, places[id] + 1);
    }
  }
  require_room({{options.width}});
  return options;
}

void count_row(const NgramOptions& options, const int64_t* row, int64_t length, float* out) {
  std::vector<int64_t> gram;
  for (size_t n = options.shortest; n <= std::min(options.longest, static_cast<size_t>(length)); ++n) {
    // A single element has nothing to skip.
    const int64_t last_stride = n == 1 ? 1 : std::min(options.skips, length) + 1;
    for (int64_t stride = 1; stride <= last_stride; ++stride) {
      const int64_t span = stride * static_cast<int64_t>(n - 1);
      if (span >= length) break;
      for (int64_t start = 0; start + span < length; ++start) {
        gram.clear();
        for (size_t i = 0; i < n; ++i) gram.push_back(row[start + stride * static_cast<int64_t>(i)]);
        const auto found = options.pool.find(gram);
        if (found == options.pool.end()) continue;
        const auto [place, weight] = found->second;
        const float step = options.weighted ? weight : 1.0F;
        out[place] = options.count ? out[place] + step : step;
      }
    }
  }
}

Kernel make_tf_idf_vectorizer(const OpInfo& info) {
  return [options = read_options(info)](Call& call) {
    const at::Tensor x = call.in(0).to(at::kLong).contiguous();
    if (x.dim() != 1 && x.dim() != 2) fail(ErrorCode::InvalidInput, "input 0", "rank {}, not 1 or 2", x.dim());
    std::vector<int64_t> shape = x.sizes().vec();
    const int64_t length = shape.back();
    const int64_t rows = x.dim() == 1 ? 1 : shape[0];
    shape.back() = options.width;
    require_room(shape);
    at::Tensor out = at::zeros(shape, at::kFloat);
    for (int64_t r = 0; r < rows; ++r) {
      count_row(options, x.data_ptr<int64_t>() + r * length, length, out.data_ptr<float>() + r * options.width);
    }
    call.out(0, out);
  };
}

}  // namespace

void register_ngram(OpRegistry& ops) {
  ops.add("TfIdfVectorizer", make_tf_idf_vectorizer, fixed_shape().with_any_ints());
}

}  // namespace kaon
