// Runs a program as a user would and keeps what it said: for tests of flags, messages, exit codes,
// Ctrl-C and sudden death.
#pragma once

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halftone::testing {

struct RunOptions {
  std::vector<std::string> environment = {};   // "NAME=VALUE", added to ours or replacing it
  std::string folder = {};                     // working folder; empty: ours
  std::string input = {};                      // standard input, up to 64 KiB
  std::chrono::milliseconds timeout{120'000};  // then it is killed
  int signal = SIGKILL;                        // what the next two send, once
  std::optional<std::chrono::milliseconds> signal_after = {};  // so long after the start
  std::string signal_when = {};  // as soon as this text is in its standard output
};

struct ProgramResult {
  int exit_code = -1;  // -1 if a signal ended it
  int signal = 0;      // that signal, or 0
  bool timed_out = false;
  std::string out;
  std::string err;
};

/// Runs `program` (a path) with `arguments`, waits for its end, and kills what is left of its
/// process group. Throws std::system_error if it cannot be started.
ProgramResult run_program(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const RunOptions& options = {});

#ifdef HALFTONE_BIN_DIR
/// The path of a program of this build.
inline std::string built(std::string_view name) {
  return std::string(HALFTONE_BIN_DIR "/").append(name);
}
#endif

}  // namespace halftone::testing
