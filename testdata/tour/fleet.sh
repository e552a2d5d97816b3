#!/usr/bin/env bash
# A fleet of four nodes of one binary on this machine: sites follow the signed registry of a hub, find each other in it, fetch a site from each
# other by hash, and are paid for the bytes that they served. RONBOX is the binary, by default bin/ronbox. It exits with 1 if a step fails.
set -euo pipefail
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
dir=$(mktemp -d /tmp/rf.XXXXXX)
export RONBOX_FLEET__CA_FILE=$dir/cert.pem RONBOX_FLEET__ALLOW_PRIVATE=127.0.0.0/8,::1/128   # the nodes are on loopback, with a CA of their own
declare -A pid url identity region
trap 'kill -9 "${pid[@]}" 2>/dev/null || true; rm -rf "$dir"' EXIT

step() { printf '\n== %s\n' "$*"; }
fail() { printf 'the tour ends here: %s\n' "$*" >&2; exit 1; }
on() { local n=$1; shift; "$ronbox" --data-dir "$dir/$n" "$@"; }        # a command on a node
show() { printf '%s$ ronbox %s\n' "$1" "${*:2}"; on "$@"; }             # a command with its output
member() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" | sed -n 1p; }     # a text member of a JSON document
get() { curl -sf --cacert "$dir/cert.pem" "$@"; }

# until_so WHAT CMD…: repeats a command until it succeeds, for three minutes at most.
until_so() {
  local what=$1 end=$((SECONDS + 180)); shift
  until "$@"; do [ $SECONDS -lt $end ] || fail "$what: not within three minutes"; sleep 0.05; done
}

# begin NODE REGION [SETTING…]: serves a node that init has made, until it is ready.
begin() {
  local n=$1; region[$n]=$2; shift 2
  env RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=warn RONBOX_TLS__ENABLED=true \
    RONBOX_TLS__CERT_PATH="$dir/cert.pem" RONBOX_TLS__KEY_PATH="$dir/key.pem" \
    RONBOX_FLEET__ENABLED=true RONBOX_FLEET__NODE="node/$n" "$@" "$ronbox" --data-dir "$dir/$n" serve 2>>"$dir/$n.log" &
  pid[$n]=$!
  disown
  up() { on "$n" status -q 2>/dev/null; }
  until_so "node $n is ready" up
  url[$n]=$(on "$n" status --json | member url)
  url[$n]=https://localhost:${url[$n]##*:}
  identity[$n]=$(on "$n" index identity --json | member peer)
}

# follow NODE REGION: a site begins with the URL of the hub and the hash of the genesis.
follow() {
  on "$1" init --follow "${url[hub]}" --genesis "$genesis" -q
  begin "$1" "$2"
}

# item NODE [NAME]: the node's descriptor, with the name that it owns.
item() {
  printf '{"id":"node/%s","kind":"node","endpoint":"%s","region":"%s","meta":{"identity":"%s","services":["edge","index"],"names":[%s]}}\n' \
    "$1" "${url[$1]}" "${region[$1]}" "${identity[$1]}" "${2:+\"$2\"}"
}

# sign FILE: makes the items of a file the next version; two of the three owners sign.
sign() { on hub registry apply "$1" --key "$dir/alice.key" --key "$dir/bob.key" | tail -1 | sed "s#$dir/##; s/payload b3:.*/signed by 2 of 3/"; }
head_of() { on "$1" registry head --json | member payload_b3; }
agree() { local n; for n in "$@"; do [ "$(head_of "$n")" = "$(head_of hub)" ] || return 1; done; }

# epoch: the number of the current epoch of 40 s, in which a busy machine does all that is counted.
epoch() { echo $(($(date +%s) / 40)); }

step "A hub, whose registry two of three owners must sign"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
on hub init -q
signers=()
for who in alice bob carol; do
  on hub registry keygen --signer-id "org:mesh#$who" --out "$dir/$who.key" --json >"$dir/$who.pub"
  signers+=(--signer "$dir/$who.pub")
done
trust=$(on hub rewarder keygen --out "$dir/policy.key" --json | member public_key)
begin hub eu-west RONBOX_REWARDER__POLICY_TRUST_KEYS="$trust"
on hub registry genesis "${signers[@]}" --threshold 2 --out "$dir/genesis.json" -q
on hub registry init --payload "$dir/genesis.json" --key "$dir/alice.key" --key "$dir/bob.key" --key "$dir/carol.key" -q
genesis=$(head_of hub)
show hub registry head

step "Three sites, each begun with the hub's URL and the genesis hash"
follow a eu-west
follow b eu-north
follow c us-east
{ item a docs.example; item b; item c; printf '{"id":"service/fleet","kind":"service","meta":{"epoch":"40s"}}\n'; } >"$dir/items.ndjson"
show hub registry lint "$dir/items.ndjson" | sed "s#$dir/##"
sign "$dir/items.ndjson"
until_so "the sites have the hub's HEAD" agree a b c
show c registry head
peers() { [ "$(on c index peers --json | grep -o '"node":' | wc -l)" = 2 ]; }
until_so "c knows a and b" peers
show c index peers

step "A site of 500 files is published at a and read at c, byte for byte"
mkdir "$dir/site"; copied=0
find "$(go env GOROOT)/src/net" "$(go env GOROOT)/src/crypto" -name '*.go' | sort | sed -n 1,499p |
  while read -r file; do cp "$file" "$dir/site/$((++copied))-$(basename "$file").txt"; done
ls "$dir/site" | sed 's#.*#<a href="&">&</a>#' >"$dir/index.html"
mv "$dir/index.html" "$dir/site/index.html"
young() { [ $(($(date +%s) % 40)) -lt 2 ]; }
until_so "an epoch that begins" young
served=$(epoch)
show a edge publish "$dir/site" name:docs.example | sed "s#$dir/##"
read_site() { # NODE: reads every file of the site at a node
  local n=$1; rm -rf "$dir/read"; mkdir "$dir/read"
  (cd "$dir/site" && ls) | sed "s#.*#url = \"${url[$n]}/edge/sites/docs.example/&\"\noutput = \"$dir/read/&\"#" | get -K - --parallel --parallel-max 8 2>/dev/null
  diff -r "$dir/site" "$dir/read" >/dev/null || fail "the site at $n differs"
  printf '%d files at %s, each equal to the original\n' "$(ls "$dir/read" | wc -l)" "$n"
}
read_site c

step "A placement brings it to b, before anyone asks there"
{ cat "$dir/items.ndjson"; printf '{"id":"placement/docs","kind":"placement","region":"eu-north","meta":{"content":"name:docs.example"}}\n'; } >"$dir/placed.ndjson"
sign "$dir/placed.ndjson"
placed() { on b edge placements --json | grep -q '"state":"complete"'; }
until_so "the site is placed at b" placed
show b edge placements

step "a is killed: b and c serve on"
kill -9 "${pid[a]}"
read_site b
read_site c

step "Nobody can publish under the name of another node"
show b edge publish "$dir/site" name:docs.example 2>&1 | sed "s#$dir/##" || printf 'exit %s\n' "${PIPESTATUS[0]}"

step "A fourth node is signed in, and is asked within a second"
kill -STOP "${pid[hub]}"
cp -r "$dir/hub" "$dir/fork"                                            # the hub as it was, for the last step
kill -CONT "${pid[hub]}"
follow d us-west
content=$(on d edge put LICENSE | cut -d' ' -f1)
on d index put name:maps.example "$content" -q
{ cat "$dir/placed.ndjson"; item d maps.example; } >"$dir/four.ndjson"
sign "$dir/four.ndjson"
from=$EPOCHREALTIME
found() { [ "$(on c index resolve name:maps.example --json 2>/dev/null | member manifest)" = "$content" ]; }
until_so "c finds the name of d" found
printf 'c has an answer of d after %s ms\n' $(((${EPOCHREALTIME/./} - ${from/./}) / 1000))

step "The epoch is collected from what the receivers attest, shared and paid"
collect() { on hub rewarder collect "$served" --from-fleet --without node/a --out "$dir/usage" >"$dir/collected.txt" 2>&1; }
until_so "the statements are final" collect
sed "s#$dir/##" "$dir/collected.txt"
on hub wallet assets --declare ron -q
on hub wallet issue pool:fleet 1000000 -q
sed 's/pool:protocol/pool:fleet/; s/"requests"/"bytes"/; s/"id":"flights"/"id":"bytes"/' testdata/rewarder/policy.json >"$dir/policy.json"
show hub rewarder run "$served" "$dir/usage/usage.csv" --policy "$dir/policy.json" --key "$dir/policy.key" --pool 1000 | sed "s#$dir/##g"
show hub wallet balance node/a
"$ronbox" rewarder verify "$dir/hub/rewarder/default/$served"/* | sed -n 1p
on hub db snapshot "$dir/backup" -q
"$ronbox" ledger verify "$dir"/backup/*.db | tail -1
for n in hub c; do
  on $n db snapshot "$dir/backup/$n" -q
  "$ronbox" registry verify --db "$dir/backup/$n"/*.db --genesis "$genesis" | tail -1
done

step "A hub with another version 4 is believed by nobody"
kill -9 "${pid[hub]}"
before=$(head_of c) at=${url[hub]##*:}
begin fork eu-west
head -3 "$dir/items.ndjson" >"$dir/other.ndjson"
on fork registry apply "$dir/other.ndjson" --key "$dir/alice.key" --key "$dir/bob.key" --force -q
kill -9 "${pid[fork]}"
begin fork eu-west RONBOX_SERVER__BIND=127.0.0.1:"$at"
refused() { on "$1" registry log highwater show --json | grep -q '"fork"'; }
for n in b c d; do until_so "$n refuses the fork" refused "$n"; done
show c registry log highwater show | sed "s#$dir/##"
[ "$(head_of c)" = "$before" ] || fail "c believes the fork"
