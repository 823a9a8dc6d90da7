#!/usr/bin/env bash
# Trains one model under several recipes and seeds and prints a table of means, from the runs' own logs.
#
#   tests/sweep.sh [-j JOBS] [-s "SEEDS"] [-r "RECIPES"] PROGRAM [ARG...]
#
#   tests/sweep.sh -s "1 2 3" -r "fp32 bf16 fp8-block" build/bin/train_mlp --data mnist --epochs 5
#
# Each run gets --precision, --seed, --log and --quiet beside ARG. Logs are kept in SWEEP_DIR (default: a new folder under
# /tmp, named at the end). Exits 1 if a run failed; its last lines are shown.
set -euo pipefail
jobs=1 seeds="1 2 3" recipes="fp32 bf16 fp16 fp8-block"
while getopts "j:s:r:" option; do
  case $option in
    j) jobs=$OPTARG ;;
    s) seeds=$OPTARG ;;
    r) recipes=$OPTARG ;;
    *) sed -n '2,10p' "$0" >&2; exit 2 ;;
  esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || { sed -n '2,10p' "$0" >&2; exit 2; }
folder=${SWEEP_DIR:-$(mktemp -d /tmp/halftone-sweep.XXXXXX)}
mkdir -p "$folder"

run_one() {  # RECIPE SEED PROGRAM ARG...
  local recipe=$1 seed=$2
  shift 2
  local name=$folder/${recipe//[^a-zA-Z0-9.=-]/_}.$seed
  if ! "$@" --precision "$recipe" --seed "$seed" --log "$name.jsonl" --quiet > "$name.out" 2>&1; then
    echo "failed: $recipe, seed $seed:" >&2
    tail -n 5 "$name.out" >&2
    return 1
  fi
}
export -f run_one
export folder

failed=0
for recipe in $recipes; do
  for seed in $seeds; do printf '%s\0%s\0' "$recipe" "$seed"; done
done | xargs -0 -n 2 -P "$jobs" bash -c 'run_one "${@: -2:1}" "${@: -1}" "${@:1:$#-2}"' _ "$@" || failed=1

# One line a recipe: means over the seeds, then each seed's own figure.
field() {  # NAME: a number of the summary line on standard input, "-" where it is not there
  sed -n 's/.*"event":"summary".*"'"$1"'":"\{0,1\}\([^,"}]*\).*/\1/p' | grep . || echo -
}
printf '%-34s %9s %10s %8s %8s  %s\n' recipe val_loss accuracy skipped seconds "per seed"
for recipe in $recipes; do
  for seed in $seeds; do
    log=$folder/${recipe//[^a-zA-Z0-9.=-]/_}.$seed.jsonl
    [ -s "$log" ] || continue
    last=$(tail -n 1 "$log")
    echo "$(field val_loss <<< "$last") $(field accuracy <<< "$last") $(field skipped <<< "$last") $(field seconds <<< "$last")"
  done | awk -v recipe="$recipe" '
    { loss += $1; accuracy += $2; skipped += $3; seconds += $4; n++
      each = each " " ($2 == "-" ? $1 : sprintf("%.4f", $2)); classifies = $2 != "-" }
    END { if (n) printf "%-34s %9.4f %10s %8d %8.1f %s\n", recipe, loss / n,
            classifies ? sprintf("%.4f", accuracy / n) : "-", skipped, seconds / n, each }'
done
echo "logs: $folder"
exit $failed
