#!/usr/bin/env bash
# Has openapi-typescript make types from the document of a new node, compiles a client of them under strict tsc, and pays with it: see judge.ts. It wants node and
# npm. RONBOX is the binary, bin/ronbox without it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in node npm; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
cp "$here"/{judge.ts,tsconfig.json,package.json} "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund)
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }
rb init --dev -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/d" serve &
pid=$!
end=$((SECONDS + 60))
until rb status --json 2>/dev/null | grep -q '"ready":true'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
rb wallet issue alice 5000 -q
url=$(rb status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
cd "$dir"
npx openapi-typescript "$url/openapi.json" -o node.ts >/dev/null
npx tsc
echo "holds  $(sed -n '/^export interface operations/,$p' node.ts | grep -c '^    [a-zA-Z]*: {$') operations compile under strict tsc"
node judge.js "$url" "$(rb token mint --scope wallet.transfer --scope wallet.read --json | sed -n 's/.*"token":"\([^"]*\)".*/\1/p')"
