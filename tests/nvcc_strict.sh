#!/usr/bin/env bash
# nvcc_strict.sh COMPILER ARG...: runs the CUDA compiler, and fails where it says that a kernel lost its speed: registers spilled
# to memory, wgmma made to wait (C7510, C7511), setmaxnreg ignored (C7508).
log=$("$@" 2>&1)
status=$?
[ -z "$log" ] || printf '%s\n' "$log" >&2
if grep -qE 'Registers are spilled|C75(08|10|11)' <<<"$log"; then
  echo "nvcc_strict: a kernel lost its speed, see above" >&2
  exit 1
fi
exit "$status"
