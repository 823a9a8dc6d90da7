#!/usr/bin/env bash
# Line coverage of core, ops and data by the CPU's tests, from the asan preset's gcov counts; fails
# where a folder has less than 90%. A line counts as run where any translation unit ran it.
#   tests/coverage.sh             after tests/run.sh --sanitize
#   tests/coverage.sh -v          also the lines that no test ran
set -euo pipefail
cd "$(dirname "$0")/.."
verbose=0
[ "${1-}" != -v ] || verbose=1

if [ -z "$(find build/asan -name '*.gcda' -print -quit 2>/dev/null)" ]; then
  echo "tests/coverage.sh: no counts in build/asan; run first: tests/run.sh --sanitize" >&2
  exit 1
fi

# gcov prints each source file as lines of "count: number: text": '-' is no code, '#####' never ran. Paths are
# relative to the sources or, behind a compiler cache, to the build.
root=$PWD
(cd build/asan && find . -name '*.gcda' -print0 |
  xargs -0 gcov --stdout --relative-only --source-prefix "$root" 2>/dev/null) |
  awk -F: -v verbose=$verbose '
    $3 == "Source" { file = $4; sub(/^(\.\.\/)+/, "", file); if (file !~ /^(core|ops|data)\//) file = ""; next }
    file == "" || $2 !~ /^ *[0-9]+$/ { next }
    {
      count = $1; gsub(/[ *]/, "", count)
      line = file ":" $2 + 0
      if (count ~ /^[0-9]/) state[line] = 2
      else if (count ~ /^[#=]/ && !(line in state)) state[line] = 1
    }
    END {
      for (line in state) {
        file = line; sub(/:.*/, "", file)
        total[file]++; ran[file] += state[line] == 2
        if (verbose && state[line] == 1) print "  not run: " line
      }
      for (file in total) {
        folder = file; sub(/\/.*/, "", folder)
        folder_total[folder] += total[file]; folder_ran[folder] += ran[file]
        if (ran[file] < 0.9 * total[file])
          printf "  %5.1f%% of %4d lines: %s\n", 100 * ran[file] / total[file], total[file], file
      }
      for (folder in folder_total) {
        percent = 100 * folder_ran[folder] / folder_total[folder]
        printf "%s: %.1f%% of %d lines\n", folder, percent, folder_total[folder]
        if (percent < 90) failed = 1
      }
      for (i = split("core ops data", wanted, " "); i > 0; i--)
        if (!(wanted[i] in folder_total)) {
          print wanted[i] ": gcov printed none of its files"
          failed = 1
        }
      exit failed
    }' | sort
