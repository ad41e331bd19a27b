#include "child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"

extern char** environ;

namespace kaon::bench {

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

int stop(const Child& child) {
  if (child.to >= 0) ::close(child.to);
  ::close(child.from);
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  return status;
}

std::string read_text(int from, bool one_line) {
  std::string text;
  char letter = 0;
  while (::read(from, &letter, 1) == 1) {
    if (one_line && letter == '\n') return text;
    text += letter;
  }
  return text;
}

std::string output_of(const std::vector<std::string>& command) {
  const Child child = start(command);
  const std::string text = read_text(child.from, false);
  if (stop(child) != 0) fail(ErrorCode::Io, command[0], "failed");
  return text;
}

}  // namespace kaon::bench
