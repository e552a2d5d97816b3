#!/usr/bin/env bash
# Makes extracts of one archive with a new node and with go-pmtiles, and has go-pmtiles and the reader of the npm package pmtiles judge ours: see judge.mjs. The source
# is Debian's nginx over TLS, whose log counts requests and bytes. It wants nginx, openssl, curl, node and npm. RONBOX is the binary, bin/ronbox without it. CACHE is a
# folder that keeps go-pmtiles, which is built from the Go module proxy (2 minutes).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in nginx openssl curl node npm; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ronbox-bench}
pmtiles=$cache/go-pmtiles-1.31.2
[ -x "$pmtiles" ] || { GOBIN=$cache CGO_ENABLED=0 "${GO:-go}" install github.com/protomaps/go-pmtiles@v1.31.2 && mv "$cache/go-pmtiles" "$pmtiles"; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/rj.XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
await() { local end=$((SECONDS + 60)); until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "not up: $*" >&2; exit 1; }; sleep 0.1; done; }

mkdir "$dir/www" "$dir/nginx" "$dir/ours" "$dir/theirs"
cp "$here"/{judge.mjs,package.json} "$dir"
(cd "$dir" && npm install --silent --no-audit --no-fund)
"${GO:-go}" build -o "$dir/world" ./testdata/bench/world
"$dir/world" "$dir/world.mbtiles" 7
"$pmtiles" convert "$dir/world.mbtiles" "$dir/www/world.pmtiles" >/dev/null 2>&1
rm "$dir/world.mbtiles"
cp testdata/packs/*.pmtiles "$dir/www"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
while port=$((20000 + RANDOM % 10000)); (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do :; done
cat >"$dir/nginx.conf" <<END
$([ "$(id -u)" != 0 ] || echo "user root;") daemon off; pid $dir/nginx/pid; error_log $dir/nginx/error.log; events { worker_connections 1024; }
http { log_format count '\$status \$body_bytes_sent'; access_log $dir/log count; root $dir/www;
  client_body_temp_path $dir/nginx/a; proxy_temp_path $dir/nginx/b; fastcgi_temp_path $dir/nginx/c; uwsgi_temp_path $dir/nginx/d; scgi_temp_path $dir/nginx/e;
  server { listen 127.0.0.1:$port ssl; ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; } }
END
nginx -p "$dir/nginx" -c "$dir/nginx.conf" -e "$dir/nginx/error.log" & pids+=($!)
"$ronbox" --data-dir "$dir/d" init -q
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off RONBOX_EDGE__MODE=live RONBOX_EDGE__ALLOW=localhost:$port RONBOX_EDGE__ALLOW_PRIVATE=127.0.0.0/8,::1/128 \
  RONBOX_EDGE__CA_FILE=$dir/cert.pem "$ronbox" --data-dir "$dir/d" serve & pids+=($!)
await curl -sfk "https://localhost:$port/world.pmtiles" -r 0-99; await "$ronbox" --data-dir "$dir/d" edge packs

# a triangle with a hole, of which go-pmtiles takes the tiles that it touches
cat >"$dir/region.json" <<END
{"type": "Polygon", "coordinates": [[[-20, -10], [60, 0], [10, 65], [-20, -10]], [[5, 10], [15, 10], [10, 30], [5, 10]]]}
END
# counted prints the requests and the body bytes that a command caused at nginx.
counted() { : >"$dir/log"; "$@" >"$dir/out" 2>&1 || { cat "$dir/out" >&2; exit 1; }; awk '{n++; b += $2} END {print n, b + 0}' "$dir/log"; }
n=0
while read -r file flags; do
  n=$((n + 1))
  ours=$(counted "$ronbox" --data-dir "$dir/d" edge extract "https://localhost:$port/$file" --name "e$n" $flags)
  cp "$dir/d/packs/e$n.pmtiles" "$dir/ours"
  theirs=$(counted env SSL_CERT_FILE="$dir/cert.pem" "$pmtiles" extract "https://localhost:$port/$file" "$dir/theirs/e$n.pmtiles" $flags)
  verified=$("$pmtiles" verify "$dir/ours/e$n.pmtiles" 2>&1) && verified=yes
  echo "e$n	$file	$flags	$ours	$theirs	${verified//$'\n'/ }"
done >"$dir/extracts" <<END
world.pmtiles --bbox=-10,35,30,60
world.pmtiles --bbox=-10,35,30,60 --maxzoom=5
world.pmtiles --bbox=-10,35,30,60 --minzoom=4 --maxzoom=6
world.pmtiles --bbox=-180,-85,180,85 --maxzoom=6
world.pmtiles --bbox=100.1,-0.1,100.2,0.1
world.pmtiles --region=$dir/region.json --maxzoom=6
stamen_toner_z3.pmtiles --bbox=-10,35,30,60
usgs-mt-whitney-8-15-webp-512.pmtiles --bbox=-118.31,36.565,-118.28,36.59 --maxzoom=14
END
node "$dir/judge.mjs" "$dir"
