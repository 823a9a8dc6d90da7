// Ctrl-C as a wish: the first SIGINT is remembered, for the loop to see when a step is done; the
// second ends the process at once.
#pragma once

namespace halftone {

/// Watches for SIGINT while it lives.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  bool requested() const;

 private:
  void (*previous_)(int);
};

}  // namespace halftone
