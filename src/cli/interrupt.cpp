#include "cli/interrupt.h"

#include <semaphore.h>

#include <csignal>
#include <system_error>
#include <thread>

#include "base/temporaries.h"

namespace kaon {
namespace {

sem_t arrived;
volatile std::sig_atomic_t which = 0;

/// Libraries have threads from before main(), so that blocking signals and waiting for them would not see them all.
void note_signal(int signal) {
  which = signal;
  sem_post(&arrived);
}

/// In a thread of its own, where everything is allowed that is not in a signal handler.
void wait_for_signals() {
  while (sem_wait(&arrived) != 0) {
  }
  remove_temporaries();
  std::signal(which, SIG_DFL);
  std::raise(which);
}

}  // namespace

void clean_up_on_signals() {
  sem_init(&arrived, 0, 0);
  try {
    std::thread(wait_for_signals).detach();
  } catch (const std::system_error&) {
    return;  // no thread is to be had: signals end the program at once
  }
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) continue;
    struct sigaction ours {};
    ours.sa_handler = note_signal;
    ours.sa_flags = SA_RESTART;
    sigaction(signal, &ours, nullptr);
  }
}

}  // namespace kaon
