#!/usr/bin/env bash
# From nothing to trained networks, on Debian 12 or Ubuntu 24.04, as root or with sudo: installs what
# is missing, builds Halftone, fetches MNIST, trains one MLP in fp32, bf16, fp16 and fp8-block and
# compares them; then trains a small decoder on characters and lets it write. A GPU is used where
# there is one and nvcc. Can be repeated: what is there is used again. Logs go to build/quickstart.
set -euo pipefail
cd "$(dirname "$0")/.."

recipes=(fp32 bf16 fp16 fp8-block)
epochs=3
results=build/quickstart
generated="GENERATED DIGITS, NOT MNIST: no source of MNIST could be reached"

say() { printf '\n== %s\n' "$*"; }

# value FIELD LOG: one field of the log's summary event.
value() { sed -n '/"event": *"summary"/s/.*"'"$1"'": *"\{0,1\}\([^,}"]*\).*/\1/p' "$2"; }
# where_trained LOG: the device and what is known of it.
where_trained() { sed -n '/"event": *"start"/s/.*"device": *"\([^"]*\)","device_note": *"\([^"]*\)".*/\1 (\2)/p' "$1"; }

# data: where MNIST is, or nothing. What the search said is kept, for the first line is the verdict.
messages=$(mktemp)
trap 'rm -f "$messages"' EXIT
find_mnist() { data=$(data/fetch.sh mnist 2>"$messages") || data=; }

has_curl=$(command -v curl || true)
find_mnist
if [ -n "$data" ]; then
  echo "Halftone: the data is MNIST, in $data"
elif [ -n "$has_curl" ]; then
  echo "$generated."
else
  echo "Halftone: MNIST is not here yet. Where it cannot be fetched, digits are generated; the last line says so."
fi
cat "$messages"

examples/prerequisites.sh curl ca-certificates
if [ -z "$data$has_curl" ]; then
  find_mnist
  cat "$messages"
  [ -n "$data" ] || say "$generated."
fi

say "Building in build"
PATH=$PATH:/usr/local/cuda/bin  # where NVIDIA's packages put nvcc
if command -v ninja >/dev/null; then
  export CMAKE_GENERATOR=Ninja
fi
options=()
if [ ! -e build/CMakeCache.txt ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
  options=(-DHALFTONE_CUDA=OFF)
fi
cmake --preset release "${options[@]}"
cmake --build build --parallel "$(nproc)" --target train_mlp train_gpt generate

mkdir -p "$results"
for recipe in "${recipes[@]}"; do
  say "Training the MLP for $epochs epochs in $recipe"
  build/bin/train_mlp --data "${data:-synthetic}" --precision "$recipe" --epochs $epochs --log "$results/$recipe.jsonl"
done

say "The same network, data and seed, on $(where_trained "$results/fp32.jsonl"); one recipe a line"
printf '%-12s %10s %10s %10s %12s\n' recipe accuracy loss seconds samples/s
for recipe in "${recipes[@]}"; do
  log=$results/$recipe.jsonl
  printf '%-12s %9.2f%% %10.4f %10.1f %12.0f\n' "$recipe" \
    "$(awk -v a="$(value accuracy "$log")" 'BEGIN { print 100 * a }')" \
    "$(value val_loss "$log")" "$(value seconds "$log")" "$(value samples_per_s "$log")"
done

text=$(data/fetch.sh tinyshakespeare)/input.txt || text=data/samples/halftone.txt
say "Training a small decoder for 300 steps on the characters of $text"
build/bin/train_gpt --data "$text" --layers 4 --heads 4 --width 128 --context 64 --batch 12 --steps 300 --dropout 0 \
  --eval-every 300 --print-every 50 --log "$results/gpt.jsonl" --out "$results/gpt.h5" --overwrite

say "What it writes"
build/bin/generate --from "$results/gpt.h5" --tokens 300 --quiet

if [ -z "$data" ]; then
  say "$generated."
fi
