#!/usr/bin/env bash
# Fills a new node with a little of everything, and has a browser open its console: see judge.mjs. It wants node, npm and Debian's chromium. RONBOX is the binary,
# bin/ronbox without it. PICTURES names a folder for pictures of the pages.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in node npm chromium; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
cp "$here"/{judge.mjs,package.json} "$here/../edge/browser.mjs" "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund)
echo "880970c081707360e64f34cea25ff91892f5bc95675b0776925b9709dd8a68bb  $dir/node_modules/axe-core/axe.min.js" | sha256sum -c --quiet
rb() { "$ronbox" --data-dir "$dir/d" "$@"; }
rb init --dev --packs testdata/packs -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/d" serve &
pid=$!
end=$((SECONDS + 60))
until rb status --json 2>/dev/null | grep -q '"ready":true'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
rb wallet issue pool:protocol 5000000 -q
rb wallet hold alice shop:one 2500 -q
rb registry apply testdata/registry/0[12]*.ndjson --key "$dir/d/registry/dev-signer.key" -q
rb rewarder run 2008 testdata/rewarder/flights-2008.csv --policy testdata/rewarder/policy.json --key "$dir/d/rewarder/dev-policy.key" --pool 1000000 -q
content=b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262
rb index put name:docs.example $content -q
rb index announce $content --addr /dns4/node.example/tcp/443/https --region eu-west-3 -q
rb edge publish "$here/site" name:site.example -q
url=$(rb status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
node "$dir/judge.mjs" "$url" "$ronbox" "$dir/d" "${PICTURES:-}"
