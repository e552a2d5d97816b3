#!/usr/bin/env bash
# A node keeps every change in an archive. Somebody pays wrongly, the machine loses its disk, and the node is restored to the moment before: receipts
# repeat byte for byte. A drill proves the archive, and a flipped byte in it is found. RONBOX is the binary, by default bin/ronbox. It exits with 1 if
# a step fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
dir=$(mktemp -d /tmp/rg.XXXXXX)
declare -A pid
trap 'kill -9 "${pid[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'the tour ends here: %s\n' "$*" >&2; tail -n 5 "$dir"/*.log >&2; exit 1; }
on() { local n=$1; shift; "$ronbox" --data-dir "$dir/$n" "$@"; }                        # a command on a node
show() { printf '%s$ ronbox %s\n' "$1" "${*:2}" | sed "s|$dir/||g"; on "$@" | sed "s|$dir/||g"; } # a command with its output
away() { printf '$ ronbox archive %s\n' "$*" | sed "s|$dir/||g"; "$ronbox" archive "$@" --target "file://$dir/usb" | sed "s|$dir/||g"; }
member() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }                                  # a text member of a JSON document

# until_so WHAT CMD…: repeats a command until it succeeds, for a minute at most.
until_so() {
  local what=$1 end=$((SECONDS + 60)); shift
  until "$@" 2>/dev/null; do [ $SECONDS -lt $end ] || fail "$what: not within a minute"; sleep 0.05; done
}

serve() { # NODE
  RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=warn RONBOX_ARCHIVE__EVERY=1s RONBOX_ARCHIVE__TARGET=file://$dir/usb \
    RONBOX_ARCHIVE__RECIPIENTS=$(<"$dir/recipient") "$ronbox" --data-dir "$dir/$1" serve 2>>"$dir/$1.log" &
  pid[$1]=$!
  disown
  ready() { on "$1" status -q; }
  until_so "node $1" ready "$1"
}
sent() { on "$1" archive status --json | tr -d ' ' | grep -q '"state":"ok".*"seq":\([0-9]*\),"sent_seq":\1,'; }

step "A key for the archive, made where the node is not; and a node that sends its changes to a disk"
mkdir "$dir/usb"
"$ronbox" archive keygen "$dir/archive.key" --json | member recipient >"$dir/recipient"
on shop init --dev -q
serve shop
until_so "the first base" sent shop
show shop archive status | grep -E '^(.*\$|state|target)'

step "Payments, and then a wrong one"
for n in $(seq 20); do on shop wallet transfer alice bob "$n" -q; done
on shop wallet transfer alice bob 1200 --idempotency-key rent-2026-11 --json -q >"$dir/rent"
on shop wallet transfer alice mallory 90000 --new --json -q >"$dir/wrong"
for n in $(seq 5); do on shop wallet transfer mallory bob "$n" -q; done
show shop wallet balance mallory | head -3
until_so "the archive" sent shop

step "The machine loses its disk; a copy of the keys and of the configuration is elsewhere"
mkdir "$dir/new"
cp -r "$dir"/shop/{node.key,registry,ronbox.toml} "$dir/new"
kill -9 "${pid[shop]}"
rm -rf "$dir/shop"

step "Another machine restores what was before the wrong payment"
away list | grep -E '^(.*\$|  (from|to|holds))' | sed -E 's/command [0-9]+/command N/; s/[0-9]+ objects, .*/N objects/'
"$ronbox" archive restore --target "file://$dir/usb" --identity "$dir/archive.key" --stamp "$(member ts <"$dir/wrong")" --to "$dir/restored" --json >"$dir/done"
printf '$ ronbox archive restore --stamp TIME --identity archive.key --to restored\n'
[ "$(sed -n 's/.*"later_commands":\([0-9]*\).*/\1/p' "$dir/done")" -ge 6 ] || fail "it left out less than the wrong payment and five more"
echo "the wrong payment and what came after it are left out"
"$ronbox" --data-dir "$dir/new" db restore "$(member file <"$dir/done")" -q
serve new
on new wallet transfer alice bob 1 -q 2>"$dir/refused" && fail "it takes writes before somebody has looked at it"
show new db accept-restore
on new wallet transfer alice bob 1200 --idempotency-key rent-2026-11 --json -q >"$dir/again"
cmp "$dir/rent" "$dir/again" || fail "another receipt"
echo "the rent, sent again: the same receipt, byte for byte"
on new wallet balance mallory -q 2>/dev/null && fail "mallory has money" || echo "mallory has no account"

step "The restored node begins a line of its own"
until_so "its first base" sent new
away list | grep -c ' line ' | sed 's/$/ lines/'

step "A drill: the newest moment is restored and proven"
away verify --identity "$dir/archive.key" --restore | grep -E '^(.*\$|bases|sound|RPO|RTO)' | sed -E 's/^(RPO|RTO) +.*/\1  TIME/'

step "A byte is flipped in the archive, and found"
object=$(cd "$dir/usb" && ls -d */*/log/* | tail -1)
printf '\xff' | dd of="$dir/usb/$object" bs=1 seek=150 conv=notrunc status=none
code=0
away verify >"$dir/found" 2>"$dir/said" || code=$?
[ $code = 3 ] && grep -qF "$object" "$dir/found" || fail "verify ended with $code"
sed "s|$object|THE OBJECT|" "$dir/found" | grep -E '^(.*\$|BAD)'
step "The tour has shown all it promised"
