#!/usr/bin/env bash
# Has a node keep its archive on versitygw, an S3 server that others have written, directly and through a proxy that answers every second request
# with 503; restores it; and opens its objects with age, zstd, b3sum and openssl alone. It wants Debian's age, b3sum, jq, openssl and zstd.
# RONBOX is the binary, bin/ronbox without it. A step that does not hold ends with 1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in age b3sum jq openssl zstd; do command -v $tool >/dev/null || { echo "missing: apt-get install age b3sum jq openssl zstd" >&2; exit 1; }; done
version=v1.8.0 cache=${XDG_CACHE_HOME:-$HOME/.cache}/ronbox-judges
gateway=$cache/versitygw-$version
if [ ! -x "$gateway" ]; then
  mkdir -p "$cache"
  CGO_ENABLED=0 GOBIN=$cache go install -ldflags='-s -w' github.com/versity/versitygw/cmd/versitygw@$version
  mv "$cache/versitygw" "$gateway"
fi
dir=$(mktemp -d /tmp/rj.XXXXXX)
pids=()
trap '[ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
step() { printf '\n== %s\n' "$*"; }
fail() { printf 'it ends here: %s\n' "$*" >&2; exit 1; }
until_so() { local what=$1 end=$((SECONDS + 60)); shift; until "$@"; do [ $SECONDS -lt $end ] || fail "$what has not come about"; sleep 0.1; done; }
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }

step "An S3 server that others have written"
mkdir -p "$dir/s3/laws" "$dir/s3/archive"
port=$((20000 + RANDOM % 10000)) server=
access=JUDGEACCESSKEY secret=judge/secret+key/1
(umask 077; printf '[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n' $access $secret >"$dir/credentials")
ROOT_ACCESS_KEY=$access ROOT_SECRET_KEY=$secret "$gateway" -q --port 127.0.0.1:$port posix "$dir/s3" >"$dir/gateway.log" 2>&1 &
pids+=($!)
server=http://127.0.0.1:$port
until_so "the server" bash -c ": </dev/tcp/127.0.0.1/$port" 2>/dev/null
RONBOX_TEST_S3=$server RONBOX_TEST_S3_BUCKET=laws RONBOX_TEST_S3_CREDENTIALS=$dir/credentials \
  go test -count=1 -vet=off -run 'TestLaws/real' ./engines/archive/target
go build -o "$dir/flaky" "$here/flaky.go"
"$dir/flaky" $server >"$dir/flaky.url" &
pids+=($!)
until_so "the proxy" test -s "$dir/flaky.url"

step "A node keeps its archive there, although every second request fails"
rb init --dev -q
"$ronbox" archive keygen "$dir/key" --json | jq -r .recipient >"$dir/recipient"
export RONBOX_ARCHIVE__TARGET=s3://archive/site/one RONBOX_ARCHIVE__CREDENTIALS_FILE=$dir/credentials RONBOX_ARCHIVE__EVERY=1s
export RONBOX_ARCHIVE__ENDPOINT=$(cat "$dir/flaky.url") RONBOX_ARCHIVE__RECIPIENTS=$(cat "$dir/recipient")
RONBOX_ARCHIVE__ENDPOINT=$server rb archive check
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=warn "$ronbox" --data-dir "$dir/d" serve >"$dir/node.log" 2>&1 &
node=$!
pids+=($node)
until_so "the node" rb status -q 2>/dev/null
sent() { rb archive status --json | jq -e 'select(.state == "ok" and .seq == .sent_seq and .base_parts == 0)' >/dev/null; }
for n in $(seq 20); do rb wallet transfer alice bob $n -q; done
until_so "the archive" sent
# A base of several parts.
seq 20000 | sed 's/.*/name:n&.example b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262/' >"$dir/names"
rb index put -q -f "$dir/names"
rb archive base -q
for n in $(seq 20); do rb wallet transfer alice bob $n -q; done
until_so "the archive" sent
rb archive status
kill $node && wait $node || true
state=$("$ronbox" db verify "$dir/d/ronbox.db" --json | jq -r .state_hash)

step "Listed, verified and restored on a machine that has the bucket and the identity"
cat >"$dir/at" <<END
--target s3://archive/site/one --endpoint $(cat "$dir/flaky.url") --credentials-file $dir/credentials
END
unset RONBOX_ARCHIVE__TARGET RONBOX_ARCHIVE__CREDENTIALS_FILE RONBOX_ARCHIVE__EVERY RONBOX_ARCHIVE__ENDPOINT RONBOX_ARCHIVE__RECIPIENTS
"$ronbox" archive list $(cat "$dir/at")
"$ronbox" archive verify $(cat "$dir/at") --identity "$dir/key" --restore
"$ronbox" archive restore $(cat "$dir/at") --identity "$dir/key" --latest --to "$dir/restored" --json >"$dir/restored.json"
[ "$(jq -r .state_hash "$dir/restored.json")" = "$state" ] || fail "another state than that of the node"
echo "state $state, as the node had it"

step "Its objects are opened without ronbox"
# bytes FILE FROM COUNT
bytes() { dd if="$1" bs=64K iflag=skip_bytes,count_bytes skip="$2" count="$3" status=none; }
# number FILE AT: four bytes, big-endian
number() { od -An -tu4 --endian=big -j"$2" -N4 "$1" | tr -d ' '; }
# plain OBJECT: the plain payload, after sum and signature were compared.
plain() {
  local size head
  size=$(stat -c %s "$1")
  head=$(number "$1" 8)
  [ "$(bytes "$1" 0 8)" = RBARCH01 ] || fail "$1 is no object"
  bytes "$1" 12 "$head" >"$dir/header"
  bytes "$1" 0 $((size - 96)) | b3sum --no-names >"$dir/sum"
  bytes "$1" $((size - 96)) 32 >"$dir/sum.raw"
  [ "$(od -An -v -tx1 "$dir/sum.raw" | tr -d ' \n')" = "$(cat "$dir/sum")" ] || fail "$1 has another sum"
  bytes "$1" $((size - 64)) 64 >"$dir/signature"
  printf "$(printf '302a300506032b6570032100%s' "$(jq -r .signer "$dir/header")" | sed 's/../\\x&/g')" >"$dir/signer.der"
  openssl pkeyutl -verify -pubin -inkey "$dir/signer.der" -keyform DER -rawin -in "$dir/sum.raw" -sigfile "$dir/signature" >/dev/null ||
    fail "$1 has another signature"
  bytes "$1" $((12 + head)) $((size - 12 - head - 96)) | age -d -i "$dir/key" | zstd -dc >"$dir/plain"
  [ "$(stat -c %s "$dir/plain")" = "$(jq .bytes "$dir/header")" ] || fail "$1 holds another number of bytes"
}
logs=("$dir"/s3/archive/site/one/*/*/log/*)
prev= entries=0
for f in "${logs[@]}"; do
  plain "$f"
  [ "$(jq -r .prev "$dir/header")" = "$prev" ] || fail "$f does not follow the one before it"
  prev=b3:$(cat "$dir/sum")
  at=0 n=0 size=$(stat -c %s "$dir/plain")
  while [ $at -lt "$size" ]; do
    at=$((at + 4 + $(number "$dir/plain" $at)))
    n=$((n + 1))
  done
  [ $at = "$size" ] && [ $n = "$(jq .entries "$dir/header")" ] || fail "$f holds other entries"
  entries=$((entries + n))
done
echo "${#logs[@]} log objects, signed and chained, with $entries groups of commands"
base=$(printf '%s\n' "$dir"/s3/archive/site/one/*/*/base/* | tail -1)
for f in "$base"/*; do plain "$f"; cat "$dir/plain"; done >"$dir/joined"
parts=$(ls "$base" | wc -l)
[ "$parts" = "$(jq .parts "$dir/header")" ] || fail "the base has another number of parts"
length=$(number "$dir/joined" 0)
mkdir "$dir/base"
bytes "$dir/joined" 4 "$length" >"$dir/manifest"
name=$(jq -r .file "$dir/manifest")
cp "$dir/manifest" "$dir/base/$name.manifest.json"
tail -c +$((5 + length)) "$dir/joined" >"$dir/base/$name"
"$ronbox" db verify "$dir/base/$name"
echo "$parts parts, joined to a snapshot"

step "A flipped byte is found and named"
f=${logs[1]}
printf '\xff' | dd of="$f" bs=1 seek=200 conv=notrunc status=none
code=0
"$ronbox" archive verify $(cat "$dir/at") --json >"$dir/verify.json" || code=$?
[ $code = 3 ] || fail "verify ends with $code"
[ "$(jq -r '.nodes[0].findings[0].object' "$dir/verify.json")" = "${f#"$dir/s3/archive/site/one/"}" ] || fail "it is not named"
jq -r '.nodes[0].findings[0] | .object + ": " + .problem' "$dir/verify.json"
! grep -rlF -e "$secret" -e AGE-SECRET "$dir/node.log" "$dir/d/archive" || fail "a credential is written down"
