#include "engine_peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

extern char** environ;

namespace kaon::bench {

namespace {

struct Child {
  int pid = -1;
  int to = -1;    ///< its stdin
  int from = -1;  ///< its stdout
};

Child start(const std::vector<std::string>& command) {
  int in[2], out[2];
  if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) fail(ErrorCode::Io, command[0], "no pipe to it");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  Child child{-1, in[1], out[0]};
  const int error = ::posix_spawn(&child.pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(in[0]);
  ::close(out[1]);
  if (error != 0) fail(ErrorCode::Io, command[0], "cannot be started");
  return child;
}

/// Closes the pipes and waits; the exit status.
int stop(const Child& child) {
  if (child.to >= 0) ::close(child.to);
  ::close(child.from);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  return status;
}

/// Up to the end, or to a line's end.
std::string read_text(int from, bool one_line) {
  std::string text;
  char letter = 0;
  while (::read(from, &letter, 1) == 1) {
    if (one_line && letter == '\n') return text;
    text += letter;
  }
  return text;
}

}  // namespace

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

std::string output_of(const std::vector<std::string>& command) {
  const Child child = start(command);
  const std::string text = read_text(child.from, false);
  if (stop(child) != 0) fail(ErrorCode::Io, command[0], "failed");
  return text;
}

}  // namespace kaon::bench
