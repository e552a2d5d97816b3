#!/usr/bin/env bash
# Has redocly judge the document of a new node and openapi-typescript make types from it, compiles a client of them and testdata/clients/pay.ts under strict tsc, and
# pays with both: see judge.ts. It wants curl, node and npm. RONBOX is the binary, bin/ronbox without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in curl node npm; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
cp "$here"/{judge.ts,tsconfig.json,package.json,redocly.yaml} testdata/clients/pay.ts "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund)
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }
rb init --dev -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/d" serve &
pid=$!
end=$((SECONDS + 60))
until rb status --json 2>/dev/null | grep -q '"ready":true'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
rb wallet issue alice 5000 -q
url=$(rb status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
token=$(rb token mint --scope wallet.transfer --scope wallet.read --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')
cd "$dir"
curl -sf "$url/openapi.json" > openapi.json
REDOCLY_TELEMETRY=off npx redocly lint openapi.json --format=stylish --max-problems=20 > lint 2>&1 || { cat lint; exit 1; }
if ! grep -q "is valid" lint || grep -q "You have" lint; then cat lint; exit 1; fi
echo "holds  redocly finds nothing"
npx openapi-typescript openapi.json -o node.ts >/dev/null
npx tsc
echo "holds  $(sed -n '/^export interface operations/,$p' node.ts | grep -c '^    [a-zA-Z]*: {$') operations compile under strict tsc"
node judge.js "$url" "$token"
pay() { RONBOX_URL=$url RONBOX_TOKEN=$token node pay.js payment.json alice carol ron 7; }
first=$(pay)
[[ $first == tx_* && $(pay) == "$first" ]]
rm payment.json
[ "$(pay)" != "$first" ]
[ "$(rb wallet balance carol --json | sed -n 's/.*"amount_minor":"\([0-9]*\)".*/\1/p')" = 14 ]
echo "holds  pay.ts pays once for each file"
