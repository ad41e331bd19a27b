#include "engine_peer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "child.h"

namespace kaon::bench {

OnnxRuntimePeer::OnnxRuntimePeer(int threads) {
  const Child child = start({KAON_PYTHON, KAON_PEER, std::to_string(threads)});
  pid_ = child.pid;
  to_ = child.to;
  from_ = child.from;
}

OnnxRuntimePeer::~OnnxRuntimePeer() { stop({pid_, to_, from_}); }

nlohmann::json OnnxRuntimePeer::ask(const std::string& command) {
  const std::string line = command + "\n";
  const bool sent = ::write(to_, line.data(), line.size()) == std::ssize(line);
  const std::string answer = sent ? read_text(from_, true) : "";
  if (answer.empty()) fail(ErrorCode::Io, "engine_peer.py", "ended at '{}'", command);
  return nlohmann::json::parse(answer);
}

void OnnxRuntimePeer::load(const std::filesystem::path& model, const std::filesystem::path& inputs) {
  ask(fmt::format("load\t{}\t{}", model.string(), inputs.string()));
}

void OnnxRuntimePeer::write_outputs(const std::filesystem::path& npz) { ask("outputs\t" + npz.string()); }

std::vector<double> OnnxRuntimePeer::run(int count) { return ask(fmt::format("run\t{}", count)); }

std::pair<double, double> OnnxRuntimePeer::memory() { return ask("memory"); }

}  // namespace kaon::bench
