#!/usr/bin/env bash
# Serves testdata/packs, packs that are odd and two sites with a new node, and has programs of others judge them: see judge.mjs and site.mjs. It wants node, npm and Debian's chromium.
# RONBOX is the binary, bin/ronbox without it. PICTURES names a folder for the pictures of the maps.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in node npm chromium; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
dir=$(mktemp -d /tmp/rj.XXXXXX)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
cp -r "$here"/*.mjs "$here/package.json" "$here/site" "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund)
mkdir "$dir/packs"
cp testdata/packs/*tiles cmd/ronbox/server/testdata/field/*.pmtiles "$dir/packs"
"$ronbox" --data-dir "$dir/d" init --dev --packs "$dir/packs" -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off "$ronbox" --data-dir "$dir/d" serve &
pid=$!
end=$((SECONDS + 60))
until "$ronbox" --data-dir "$dir/d" edge packs --json 2>/dev/null | grep -qv '"state":"verifying"'; do [ $SECONDS -lt $end ] || exit 1; sleep 0.1; done
url=$("$ronbox" --data-dir "$dir/d" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
node "$dir/judge.mjs" "$url" "${PICTURES:-}"

(
  cd "$dir/site"
  cp ../node_modules/@fontsource/press-start-2p/files/press-start-2p-latin-400-normal.woff2 f.woff2
  { printf 'PK\5\6' && head -c 18 /dev/zero; } >d.zip
  node -e 'const z = require("zlib"), fs = require("fs"); for (const [ext, f] of [["br", "brotliCompressSync"], ["gz", "gzipSync"]])
    fs.writeFileSync("app.js." + ext, z[f](`document.documentElement.dataset.app = "${ext}"`))'
)
"$ronbox" --data-dir "$dir/d" edge publish "$dir/site" name:site.example -q
mkdir "$dir/app"
echo '<!doctype html><title>app</title><link rel="icon" href="data:,"><p id="at"></p><script>at.textContent = location.pathname</script>' >"$dir/app/200.html"
"$ronbox" --data-dir "$dir/d" edge publish "$dir/app" name:app.example -q
node "$dir/site.mjs" "$url/edge/sites" "$ronbox" "$dir/d"
