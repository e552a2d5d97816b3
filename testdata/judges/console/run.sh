#!/usr/bin/env bash
# Serves a new node and has a browser open its console: see judge.mjs. It wants node and Debian's chromium. RONBOX is the binary, bin/ronbox without it.
# PICTURES names a folder for pictures of the pages.
set -euo pipefail
cd "$(dirname "$0")/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in node chromium; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
"$ronbox" --data-dir "$dir/d" init --dev --packs testdata/packs -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/d" serve &
pid=$!
end=$((SECONDS + 60))
until "$ronbox" --data-dir "$dir/d" status --json 2>/dev/null | grep -q '"ready":true'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
url=$("$ronbox" --data-dir "$dir/d" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
code() { "$ronbox" --data-dir "$dir/d" console --print --write; }
node testdata/judges/console/judge.mjs "$url" "$(code)" "$(code)" "${PICTURES:-}"
