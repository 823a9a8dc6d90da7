#!/usr/bin/env bash
# clang-tidy over every .cc and the headers they include, with the checks of .clang-tidy. Needs
# clang-tidy (package clang-tidy) and a configured build folder, whose compile commands it reads.
#   tests/tidy.sh [FILE.cc...]    BUILD=build/debug tests/tidy.sh reads another build folder's
set -euo pipefail
cd "$(dirname "$0")/.."
build=${BUILD:-build}

if ! command -v clang-tidy >/dev/null; then
  echo "tests/tidy.sh: there is no clang-tidy here; install the package clang-tidy" >&2
  exit 1
fi
if [ ! -e "$build/compile_commands.json" ]; then
  echo "tests/tidy.sh: $build is not configured; run: cmake --preset release" >&2
  exit 1
fi
if [ $# -eq 0 ]; then
  mapfile -t files < <(find core ops data models examples tests -name '*.cc' | sort)
  set -- "${files[@]}"
fi
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet \
  --header-filter="^$PWD/(core|ops|data|models|examples|tests)/" \
  2>&1 | sed '/warnings\{0,1\} generated\.$/d'
