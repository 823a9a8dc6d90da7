#include "data/known_data.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "data/files.h"
#include "data/idx.h"

namespace halftone {
namespace {

namespace fs = std::filesystem;

// The data set itself within `folder`, or an empty path where it is not complete.
fs::path complete_in(const fs::path& folder, const std::string& name) {
  if (name == "mnist") {
    for (const char* part : {"train", "t10k"}) {
      if (!find_idx(folder, concat(part, "-images"), 3) ||
          !find_idx(folder, concat(part, "-labels"), 1)) {
        return {};
      }
    }
    return folder;
  }
  std::error_code ignored;
  const fs::path text = folder / "input.txt";
  return fs::is_regular_file(text, ignored) ? text : fs::path();
}

// Unset and empty environment variables are the same.
fs::path from_environment(const char* variable, const char* below) {
  const char* value = std::getenv(variable);
  return value == nullptr || *value == '\0' ? fs::path() : fs::path(value) / below;
}

fs::path cache_folder(const std::string& name) {
  fs::path cache = from_environment("XDG_CACHE_HOME", "");
  if (cache.empty()) {
    cache = from_environment("HOME", ".cache");
  }
  return cache.empty() ? fs::path() : cache / "halftone" / name;
}

// Runs data/fetch.sh, whose messages go to standard error; its exit status, or -1 where it could
// not be started.
int run_fetch(const std::string& name) {
  std::string script = HALFTONE_FETCH;
  std::string argument = name;
  std::string shell = "bash";
  char* const arguments[] = {shell.data(), script.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, "bash", &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (error != 0) {
    return -1;
  }
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return -1;
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

bool is_known_data(const std::string& name) {
  return name == "mnist" || name == "tinyshakespeare" || name == "shakespeare";
}

fs::path locate_known_data(const std::string& given) {
  HALFTONE_CHECK(is_known_data(given),
                 "locate_known_data: '",
                 given,
                 "' is neither mnist nor tinyshakespeare");
  const std::string name = given == "shakespeare" ? "tinyshakespeare" : given;
  const fs::path cache = cache_folder(name);
  const fs::path shared = from_environment("HALFTONE_DATA", name.c_str());
  for (const fs::path& folder : {shared, cache}) {
    if (const fs::path found = folder.empty() ? folder : complete_in(folder, name);
        !found.empty()) {
      return found;
    }
  }
  const int status = cache.empty() ? -1 : run_fetch(name);
  if (const fs::path found = status == 0 ? complete_in(cache, name) : fs::path(); !found.empty()) {
    return found;
  }
  throw FileError(concat(name,
                         ": not in $HALFTONE_DATA (",
                         shared.empty() ? "unset" : shared.string(),
                         "), not in the cache (",
                         cache.empty() ? "no HOME" : cache.string(),
                         "), and data/fetch.sh ",
                         name,
                         " did not bring it (exit status ",
                         status,
                         "); pass its path to --data, or train on generated data with --data ",
                         kSyntheticName));
}

}  // namespace halftone
