#!/usr/bin/env bash
# Makes the data directory of a released form with the binary of that release, and records what the node answers:
#   testdata/releases/make.sh BINARY NAME     writes NAME.tar.gz and NAME.answers.ndjson beside this script
# It wants curl, jq, openssl and python3 (an HTTPS server for one file to be fetched). The keys in it open nothing else.
set -euo pipefail
ronbox=$(realpath "$1") name=$2
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
pids=()
trap 'kill -9 "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
cd "$dir"
await() { local end=$((SECONDS + 60)); until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "not up: $*" >&2; exit 1; }; sleep 0.1; done; }
rb() { "$ronbox" --data-dir "$dir/data" "$@"; }

# One file to be fetched, from a host of this machine.
mkdir www packs
head -c 3000 /dev/zero | tr '\0' 'x' >www/hello.txt
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout key.pem -out cert.pem 2>/dev/null
python3 - <<'PY' & pids+=($!)
import http.server, ssl
class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *args): super().__init__(*args, directory="www")
    def end_headers(self):
        self.send_header("ETag", '"one"')
        super().end_headers()
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 18443), Handler)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain("cert.pem", "key.pem")
server.socket = tls.wrap_socket(server.socket, server_side=True)
server.serve_forever()
PY
await curl -sk https://localhost:18443/hello.txt

python3 - <<'PY' # a pack of one tile
import sqlite3
db = sqlite3.connect("packs/one.mbtiles")
db.executescript("""PRAGMA page_size=512;
CREATE TABLE metadata (name text, value text);
CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
INSERT INTO metadata VALUES ('name','one'),('format','png'),('minzoom','0'),('maxzoom','0');""")
db.execute("INSERT INTO tiles VALUES (0,0,0,?)", (b"\x89PNG\r\n\x1a\n" + b"\0" * 64,))
db.commit()
PY

rb init --dev --packs packs -q
RONBOX_SERVER__BIND=127.0.0.1:18080 RONBOX_EDGE__MODE=live RONBOX_EDGE__ALLOW=localhost:18443 RONBOX_EDGE__ALLOW_PRIVATE=127.0.0.0/8,::1/128 \
  RONBOX_EDGE__CA_FILE=$dir/cert.pem RONBOX_LOG__LEVEL=error "$ronbox" --data-dir "$dir/data" serve & node=$!; pids+=($node)
await rb status -q
rb edge fill -q https://localhost:18443/hello.txt

# Money: an issue, transfers, a batch, a frozen account, holds in each state.
rb wallet issue bob 500 --memo welcome --key issue-1 -q
rb wallet transfer alice bob 1200 --key rent --nonce 1 -q
rb wallet assets --declare gold -q
rb wallet issue carol 70 --asset gold --key gold-1 -q
rb wallet burn carol 20 --asset gold --key burn-1 -q
open=$(rb wallet hold alice shop 300 --expires-in 720h --key hold-1 --json 2>/dev/null | jq -r .txid)
taken=$(rb wallet hold alice shop 400 --key hold-2 --json 2>/dev/null | jq -r .txid)
given=$(rb wallet hold alice shop 50 --key hold-3 --json 2>/dev/null | jq -r .txid)
rb wallet capture "$taken" 250 --key take-1 -q
rb wallet release "$given" --key give-1 -q
rb wallet freeze bob -q
printf 'op,from,to,asset,amount_minor\ntransfer,alice,dan,ron,10\ntransfer,alice,erin,ron,20\n' >batch.csv
rb wallet batch batch.csv -q >/dev/null

# A registry of three versions, an approved and an unapproved proposal.
for n in 1 2; do
  for i in $(seq 1 $((n * 4))); do printf '{"id":"node/%02d","kind":"node","meta":{"turn":"%d"}}\n' $i $n; done >items$n
  rb registry apply items$n --key data/registry/dev-signer.key -q
done
draft='{"schema_version":"1.0.0","version":4,"mode":"delta","put":[{"id":"node/%s","kind":"node","meta":{}}],"remove":[]}'
printf "$draft" next | rb registry propose - -q
printf "$draft" later | rb registry propose - --json | jq -r .proposal_id >proposal
rb registry proposals "$(cat proposal)" --payload >payload
rb registry sign --payload payload --key data/registry/dev-signer.key --out approval -q
rb registry approve "$(cat proposal)" --approval approval -q
rb registry checkpoint --now >/dev/null

# A run that is paid.
rb wallet issue pool:protocol 5000 --key pool-1 -q
printf '%s' '{"asset":"ron","calculus":"ronbox-calculus/1","caps":{"actor_max_minor":"0","excess":"residual","pool_max_minor":"5000000"},"floors":{"dust_minor":"0","guarantee_minor":"0"},"funding":{"account":"pool:protocol","mode":"transfer","source":"protocol_pool"},"id":"flights","metrics":{"requests":{"den":"1","num":"1","row_max":"0"}},"mode":"share","residual":{"account":"","mode":"retain"},"rounding":"largest_remainder","scale":"0","schema":"ronbox.rw.policy/1","shortfall":"quarantine","tenant":"default","version":"1.0.0"}' >policy.json
printf 'actor,metric,qty\nx/1,requests,5\nx/2,requests,7\nx/3,requests,12\n' >usage.csv
rb rewarder run e1 usage.csv --policy policy.json --key data/rewarder/dev-policy.key --pool 1000 -q >/dev/null

# Names, one of them removed, and providers.
id=b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
other=b3:1077317f64563545aae975346e9cb82f126ea29c7c071cd0cf6ce6d65c337a0e
rb index put name:docs.example $id -q
rb index put name:docs.example@1.0.0 $other -q
rb index put name:gone.example $id -q
rb index rm name:gone.example -q
rb index announce $id --addr /dns4/node.example/tcp/443/https --region eu-west-3 --ttl 48h -q
rb token mint --scope wallet.read --ttl 30d --out reader.token -q
mv reader.token data/reader.token

admin=$(cat data/admin.token)
ask() { # PATH…
  for p in "$@"; do
    body=$(curl -s -o body -w '%{http_code}' -H "Authorization: Bearer $admin" -H "Accept: ${accept:-application/json}" "http://127.0.0.1:18080$p")
    jq -cn --arg path "$p" --argjson status "$body" --rawfile body body '{path:$path, status:$status, body:$body}'
  done
}
{
  for a in alice bob shop dan erin pool:protocol x/1 x/2 x/3; do ask "/v1/balance?account=$a&asset=ron" "/v1/account?account=$a" "/v1/history?account=$a&asset=ron"; done
  ask "/v1/balance?account=carol&asset=gold" /v1/assets /v1/ledger/head "/v1/tx/$open" "/v1/tx/$taken" "/v1/tx/$given" "/v1/tx/$open/proof"
  for tx in $(curl -s -H "Authorization: Bearer $admin" "http://127.0.0.1:18080/v1/history?account=alice&asset=ron" | jq -r '.entries[].receipt.txid' | sort -u); do ask "/v1/tx/$tx"; done
  ask /registry/head /registry/1 /registry/2 /registry/3 /registry/3/payload /registry/3/entry /registry/proposals "/registry/proposals/$(cat proposal)" /registry/checkpoint /registry/signers \
    /registry/audit "/registry/3/item?id=node/01"
  ask /rewarder/epochs /rewarder/epochs/e1 /rewarder/epochs/e1/allocations "/rewarder/epochs/e1/proof?actor=x/2"
  ask /index/names /index/names/name:docs.example /index/names/name:docs.example@1.0.0 /resolve/name:docs.example /providers/$id /resolve/name:gone.example
  ask /edge/tiles/one.json /edge/assets/localhost:18443/hello.txt /index/identity
} >"$here/$name.answers.ndjson"

kill $node
wait $node || true
rm -f data/admin.sock
rb db compact -q
tar --sort=name --owner=0 --group=0 -C data -czf "$here/$name.tar.gz" .
ls -l "$here/$name".*
