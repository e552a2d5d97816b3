#!/usr/bin/env bash
# Measures what lone payments write: it pays 20 times, one second apart, and prints the bytes a payment that reached the device of $TMPDIR
# (/proc/diskstats, less those of as long a time without payments). Other programs that write to the device disturb it: give it one of its own, such as
#   truncate -s 600M /dev/shm/disk && mkfs.ext4 -q /dev/shm/disk && mount -o loop /dev/shm/disk /mnt && TMPDIR=/mnt flash.sh
# RONBOX is the binary, bin/ronbox without it.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
unset RONBOX
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/flash.XXXXXX")
node=
trap '[ -z "$node" ] || { kill "$node" && wait "$node"; } || true; rm -rf "$dir"' EXIT
export RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off
"$ronbox" --data-dir "$dir/d" init --dev -q
"$ronbox" --data-dir "$dir/d" serve & node=$!
until "$ronbox" --data-dir "$dir/d" status --json 2>/dev/null | grep -q '"ready":true'; do kill -0 "$node"; sleep 0.1; done
url=$("$ronbox" --data-dir "$dir/d" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
pay() {
  curl -sf -o "$dir/answer" -H "Authorization: Bearer $(cat "$dir/d/admin.token")" -H "Content-Type: application/json" -H "Idempotency-Key: $1" \
    -d '{"from":"alice","to":"bob","asset":"ron","amount_minor":"1"}' "$url/v1/transfer"
}
device=$(printf '%d %d' "0x$(stat -c %D "$dir" | sed 's/..$//')" "0x$(stat -c %D "$dir" | sed 's/.*\(..\)$/\1/')")
sectors() { awk -v of="$device" '$1 " " $2 == of {print $10}' /proc/diskstats; }
for i in $(seq 5); do pay "first-$i"; done
sleep 45 # what these payments and the start have written reaches the device
idle=$(sectors); sleep 20; idle=$(($(sectors) - idle))
from=$(sectors)
for i in $(seq 20); do pay "$i"; sleep 1; done
echo "a payment: $(((($(sectors) - from - idle) * 512) / 20)) bytes"
