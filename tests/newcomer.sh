#!/usr/bin/env bash
# Proves that a newcomer's two commands work as written: in a fresh, minimal Debian 12 without build
# tools, made by debootstrap. By hand and as root; needs debootstrap, a Debian mirror in this system's
# own apt configuration, about 3 GB in the folder given (default: under /tmp) and 20 minutes.
#   tests/newcomer.sh [FOLDER]
#   SUITE=trixie tests/newcomer.sh [FOLDER]   another Debian, with its newer compiler and libraries
set -euo pipefail
cd "$(dirname "$0")/.."
suite=${SUITE:-bookworm}
folder=${1:-$(mktemp -d /tmp/halftone-newcomer.XXXXXX)}
base=$folder/base  # as debootstrap left it: made once
root=$folder/root  # a copy, made anew each time

unmount() {
  for mount in proc dev/pts; do
    mountpoint -q "$root/$mount" && umount "$root/$mount"
  done
  true
}
trap unmount EXIT

if [ ! -e "$folder/made" ]; then
  mirror=$(apt-get indextargets --format '$(SITE) $(COMPONENT)' 'Created-By: Packages' 'Origin: Debian' |
    awk '$2 == "main" && !mirror { mirror = $1 } END { print mirror }')
  debootstrap --variant=minbase "$suite" "$base" "${mirror:?no Debian mirror is configured here}"
  touch "$folder/made"
fi
rm -rf --one-file-system "$root"
cp -a "$base" "$root"
# The network's settings are this machine's: proxies, names, certificates.
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp -r /etc/apt/apt.conf.d/. "$root/etc/apt/apt.conf.d/"
mount -t proc proc "$root/proc"
mount -t devpts devpts "$root/dev/pts"

mkdir "$root/halftone"
git ls-files -z | xargs -0 cp --parents -t "$root/halftone"

# Each command as the README has it, in a shell that knows nothing of this machine but its proxies.
newcomer() {
  env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    http_proxy="${http_proxy-}" https_proxy="${https_proxy-}" no_proxy="${no_proxy-}" \
    chroot "$root" bash -c "cd /halftone && $1" </dev/null
}
for command in examples/quickstart.sh tests/run.sh; do
  for round in first second; do
    start=$(date +%s)
    newcomer "$command"
    echo "newcomer: $command, $round time: $(($(date +%s) - start)) s"
  done
done
