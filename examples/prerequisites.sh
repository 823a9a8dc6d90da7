#!/usr/bin/env bash
# Installs what Halftone's build needs, and the packages named as arguments, with apt-get: on Debian 12
# and Ubuntu 24.04, as root or with sudo. Says what it installs; does nothing where all is there.
set -euo pipefail

wanted=(g++ cmake ninja-build zlib1g-dev libhdf5-dev libeigen3-dev libcxxopts-dev libgtest-dev "$@")

# A tool counts wherever it came from; a library counts as a package.
present() {
  case $1 in
    g++ | cmake | curl) command -v "$1" ;;
    ninja-build) command -v ninja ;;
    *) [ "$(dpkg-query -W -f '${db:Status-Status}' "$1")" = installed ] ;;
  esac >/dev/null 2>&1
}

if ! command -v apt-get >/dev/null; then
  echo "No apt-get here: if the build stops, install what these Debian packages hold: ${wanted[*]}"
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  present "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

install=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "Missing: ${missing[*]}. As root, run: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  install=(sudo "${install[@]}")
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing with apt-get: ${missing[*]}"
if ! { "${install[@]}" update && "${install[@]}" install --no-install-recommends "${missing[@]}"; } \
  </dev/null >"$log" 2>&1; then
  cat "$log" >&2
  echo "apt-get could not install: ${missing[*]}" >&2
  exit 1
fi
