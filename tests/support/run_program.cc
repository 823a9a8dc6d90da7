#include "tests/support/run_program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace halftone::testing {
namespace {

using Clock = std::chrono::steady_clock;

void check(int error, const std::string& what) {
  if (error != 0) {
    throw std::system_error(error, std::generic_category(), what);
  }
}

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Pipe() {
    int ends[2];
    check(pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno, "pipe2");
    read = Descriptor(ends[0]);
    write = Descriptor(ends[1]);
  }
  Descriptor read;
  Descriptor write;
};

std::vector<std::string> merged_environment(const std::vector<std::string>& additions) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view ours = *entry;
    const std::string_view name = ours.substr(0, ours.find('=') + 1);
    if (std::none_of(additions.begin(), additions.end(), [&](const std::string& a) {
          return a.starts_with(name);
        })) {
      result.emplace_back(ours);
    }
  }
  result.insert(result.end(), additions.begin(), additions.end());
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  result.reserve(strings.size() + 1);
  for (std::string& s : strings) {
    result.push_back(s.data());
  }
  result.push_back(nullptr);
  return result;
}

/// Starts the program in a process group of its own with its three streams on the given ends.
pid_t start(const std::string& program,
            const std::vector<std::string>& arguments,
            const RunOptions& options,
            std::array<int, 3> streams) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  check(posix_spawn_file_actions_init(&actions), "posix_spawn_file_actions_init");
  check(posix_spawnattr_init(&attributes), "posix_spawnattr_init");
  for (int stream = 0; stream < 3; ++stream) {
    posix_spawn_file_actions_adddup2(&actions, streams[stream], stream);
  }
  if (!options.folder.empty()) {
    posix_spawn_file_actions_addchdir_np(&actions, options.folder.c_str());
  }
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<std::string> argument_strings{program};
  argument_strings.insert(argument_strings.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_strings = merged_environment(options.environment);
  pid_t pid = -1;
  const int error = posix_spawn(&pid,
                                program.c_str(),
                                &actions,
                                &attributes,
                                pointers(argument_strings).data(),
                                pointers(environment_strings).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  check(error, "cannot start " + program);
  return pid;
}

/// Appends what can be read without waiting; false at the end of the stream.
bool drain(const Descriptor& from, std::string& to) {
  char buffer[4096];
  const ssize_t count = read(from.get(), buffer, sizeof buffer);
  if (count > 0) {
    to.append(buffer, static_cast<size_t>(count));
  }
  return count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
}

}  // namespace

ProgramResult run_program(const std::string& program,
                          const std::vector<std::string>& arguments,
                          const RunOptions& options) {
  Pipe in, out, err;
  if (options.input.size() > 65536) {  // what a pipe takes before anybody reads
    throw std::invalid_argument("run_program: input is longer than 64 KiB");
  }
  const auto started = Clock::now();
  const pid_t pid =
      start(program, arguments, options, {in.read.get(), out.write.get(), err.write.get()});
  out.write.close();
  err.write.close();
  [[maybe_unused]] const ssize_t written =
      write(in.write.get(), options.input.data(), options.input.size());
  in.read.close();
  in.write.close();

  ProgramResult result;
  bool signalled = false;
  bool ended = false;
  int status = 0;
  bool out_open = true, err_open = true;
  // Its end, not the end of its streams, is what counts: a grandchild may hold them open.
  while (!ended) {
    ended = waitpid(pid, &status, WNOHANG) == pid;
    pollfd polls[] = {{out_open ? out.read.get() : -1, POLLIN, 0},
                      {err_open ? err.read.get() : -1, POLLIN, 0}};
    while (poll(polls, 2, ended ? 0 : 2) > 0 && (polls[0].revents != 0 || polls[1].revents != 0)) {
      if (polls[0].revents != 0 && !drain(out.read, result.out)) {
        out_open = false;
        polls[0].fd = -1;
      }
      if (polls[1].revents != 0 && !drain(err.read, result.err)) {
        err_open = false;
        polls[1].fd = -1;
      }
      if (!ended) {
        break;
      }
    }
    const auto elapsed = Clock::now() - started;
    const bool due =
        (options.signal_after && elapsed >= *options.signal_after) ||
        (!options.signal_when.empty() && result.out.find(options.signal_when) != std::string::npos);
    if (!ended && due && !signalled) {
      kill(pid, options.signal);
      signalled = true;
    }
    if (!ended && elapsed >= options.timeout) {
      kill(pid, SIGKILL);
      result.timed_out = true;
    }
  }
  kill(-pid, SIGKILL);
  if (WIFEXITED(status)) {
    result.exit_code = WEXITSTATUS(status);
  } else if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  }
  return result;
}

}  // namespace halftone::testing
