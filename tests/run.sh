#!/usr/bin/env bash
# Installs what is missing, checks the formatting, builds Halftone in build/ and runs every test; the
# CUDA code is built where nvcc is, and the GPU's tests run where a GPU is. Can be repeated.
#   tests/run.sh [--sanitize]    --sanitize: first the CPU's tests under AddressSanitizer and UBSan
set -euo pipefail
cd "$(dirname "$0")/.."

sanitize=false
case "${1-}" in
  "") ;;
  --sanitize) sanitize=true ;;
  *)
    echo "usage: tests/run.sh [--sanitize]" >&2
    exit 2
    ;;
esac

say() { printf '\n== %s\n' "$*"; }
build() { cmake --build "$1" --parallel "$(nproc)"; }
run_tests() { ctest --test-dir "$1" --output-on-failure --progress --parallel "$(nproc)" </dev/null; }

check_formatting() {
  local formatter file unformatted=()
  formatter=$(command -v clang-format-14 || command -v clang-format || true)
  if [[ -z $formatter || $("$formatter" --version) != *"version 14."* ]]; then
    say "Formatting: not checked, there is no clang-format 14 here"
    return
  fi
  say "Formatting"
  while read -r file; do
    "$formatter" --dry-run -Werror "$file" 2>/dev/null || unformatted+=("$file")
  done < <(find core ops data models examples tests -regex '.*\.\(h\|cc\|cuh\|cu\)')
  if [ ${#unformatted[@]} -gt 0 ]; then
    echo "not as .clang-format wants it; run: clang-format -i ${unformatted[*]}" >&2
    return 1
  fi
  echo "as .clang-format wants it"
}

examples/prerequisites.sh
check_formatting
PATH=$PATH:/usr/local/cuda/bin  # where NVIDIA's packages put nvcc
if command -v ninja >/dev/null; then
  export CMAKE_GENERATOR=Ninja
fi

if $sanitize; then
  say "Building with AddressSanitizer and UBSan in build/asan"
  cmake --preset asan
  build build/asan
  run_tests build/asan
fi

say "Building in build"
cmake --preset release -DHALFTONE_CUDA=AUTO
build build
if grep -q '^HALFTONE_BUILT_CUDA:.*=TRUE' build/CMakeCache.txt; then
  say "Building without the CUDA code in build/cpu: libraries and programs"
  cmake -S . -B build/cpu -DHALFTONE_CUDA=OFF -DBUILD_TESTING=OFF
  build build/cpu
else
  say "No nvcc: the CUDA code was not compiled"
fi
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  say "Tests, with $(nvidia-smi -L | head -1 | sed 's/ (UUID.*//')"
else
  say "Tests; there is no GPU here, so the GPU's tests report that they were skipped"
fi
run_tests build
