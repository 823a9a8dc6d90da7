#include "models/interrupt.h"

#include <csignal>

namespace halftone {
namespace {

volatile std::sig_atomic_t interrupt_requested = 0;

extern "C" void remember_interrupt(int) {
  interrupt_requested = 1;
  std::signal(SIGINT, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  interrupt_requested = 0;
  previous_ = std::signal(SIGINT, remember_interrupt);
  if (previous_ == SIG_IGN) {  // started in the background by a shell: stays ignored
    std::signal(SIGINT, SIG_IGN);
  }
}

InterruptGuard::~InterruptGuard() { std::signal(SIGINT, previous_); }

bool InterruptGuard::requested() const { return interrupt_requested != 0; }

}  // namespace halftone
