// Text to tokens on one thread, beside Hugging Face's tokenizers in a process of its own.
#include "text/tokenizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "bench.h"
#include "child.h"

namespace kaon::bench {

namespace {

namespace fs = std::filesystem;

class Peer {
 public:
  Peer(const fs::path& tokenizer, const fs::path& text, bool lines)
      : child_(start({KAON_PYTHON, KAON_TOKENIZER_PEER, tokenizer.string(), text.string(), lines ? "1" : "0"})),
        summary_(read_text(child_.from, true)) {}
  ~Peer() { stop(child_); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  /// "count checksum"
  const std::string& summary() const { return summary_; }
  std::vector<double> run(int count) {
    const std::string line = std::to_string(count) + "\n";
    const bool sent = ::write(child_.to, line.data(), line.size()) == std::ssize(line);
    const std::string answer = sent ? read_text(child_.from, true) : "";
    if (answer.empty()) fail(ErrorCode::Io, "tokenizer_peer.py", "ended");
    return nlohmann::json::parse(answer);
  }

 private:
  Child child_;
  std::string summary_;
};

std::vector<std::string> read_texts(const fs::path& path, bool lines) {
  std::stringstream all;
  all << std::ifstream(path, std::ios::binary).rdbuf();
  if (!lines) return {all.str()};
  std::vector<std::string> texts;
  for (std::string line; std::getline(all, line);) texts.push_back(line);
  if (all.str().ends_with('\n')) texts.emplace_back();
  return texts;
}

std::string summary_of(const TokenIds& ids) {
  uint64_t sum = 0;
  for (size_t i = 0; i < ids.size(); ++i) sum += (i + 1) * static_cast<uint64_t>(ids[i]);
  return fmt::format("{} {}\n", ids.size(), sum);
}

Work prepare(const fs::path& folder, const fs::path& text, bool lines) {
  const TokenizerPtr tokenizer = open_tokenizer(folder);
  const auto texts = std::make_shared<std::vector<std::string>>(read_texts(text, lines));
  const auto peer = std::make_shared<Peer>(folder / "tokenizer.json", text, lines);
  const auto encode = [tokenizer, texts] {
    std::vector<TokenIds> all;
    for (const std::string& one : *texts) all.push_back(tokenizer->encode(one, false));
    return all;
  };
  Work work;
  work.check = [encode, peer] {
    TokenIds ids;
    for (const TokenIds& one : encode()) ids.insert(ids.end(), one.begin(), one.end());
    std::string theirs = peer->summary();
    if (!theirs.ends_with('\n')) theirs += '\n';
    if (summary_of(ids) != theirs) {
      fail(ErrorCode::Internal, "tokens", "count and checksum are {} and not the peer's {}", summary_of(ids), theirs);
    }
  };
  work.kaon = [encode] { encode(); };
  work.remote_peer = [peer](int count) { return peer->run(count); };
  return work;
}

const bool kAdded = add([](Cases& cases) {
  const fs::path models = KAON_MODELS;
  const fs::path texts = models.parent_path() / "data" / "text";
  if (!fs::exists(KAON_PYTHON)) {
    std::cerr << "no oracles: " << KAON_PYTHON << " does not exist (make oracles brings it)\n";
    return;
  }
  const std::vector<fs::path> folders = {models / "opt-17m", models / "llama-9m", models / "gpt2-5m",
                                         fs::path(KAON_MORE_MODELS) / "all-MiniLM-L6-v2"};
  for (const fs::path& folder : folders) {
    if (!fs::exists(folder / "tokenizer.json")) {
      std::cerr << folder.string() << " is not there and not measured\n";
      continue;
    }
    for (const auto& [name, file] : {std::pair{"wikitext", "wikitext2.test.raw.txt"}, {"docs", "docs_valid.txt"}}) {
      for (const bool lines : {false, true}) {
        const fs::path text = texts / file;
        cases.push_back(
            {.name = fmt::format("{}/{}/{}/1t", folder.filename().string(), name, lines ? "lines" : "whole"),
             .peer_name = "tokenizers",
             .unit = "MB/s",
             .amount = static_cast<double>(fs::file_size(text)) / 1e6,
             .threads = 1,
             .prepare = [folder, text, lines] { return prepare(folder, text, lines); }});
      }
    }
  }
});

}  // namespace

}  // namespace kaon::bench
