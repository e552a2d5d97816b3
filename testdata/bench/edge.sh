#!/usr/bin/env bash
# Measures the edge beside nginx, Caddy (Debian's packages), go-pmtiles (built from the Go module proxy) and a bare net/http file server, all on loopback, one after
# the other: warm assets of 4 and 16 KiB, and 64 KiB out of 100 MiB, and the same files as those of a site; a tile of 18 KiB; requests a second, and the CPU time of
# each server for one; an extract of 200 MB at a host whose answers take 50 ms; the memory that 50 downloads of 1 GiB cost; and a tile inside the process. Usage: edge.sh [SECONDS]. It wants wrk, nginx, caddy, openssl and
# curl. Run it on a machine that does nothing else. RONBOX is the binary, bin/ronbox without it. CACHE is a folder that keeps go-pmtiles (2 minutes to build).
set -euo pipefail
seconds=${1:-10}
cd "$(dirname "$0")/../.."
ronbox=$(realpath "${RONBOX:-bin/ronbox}")
for tool in wrk nginx caddy openssl curl; do command -v $tool >/dev/null || { echo "missing: apt-get install $tool" >&2; exit 1; }; done
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ronbox-bench}
pmtiles=$cache/go-pmtiles-1.31.2
[ -x "$pmtiles" ] || { GOBIN=$cache CGO_ENABLED=0 "${GO:-go}" install github.com/protomaps/go-pmtiles@v1.31.2 && mv "$cache/go-pmtiles" "$pmtiles"; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/rp.XXXXXX")
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
port() { local p; while :; do p=$((20000 + RANDOM % 10000)); (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null || { echo $p; return; }; done; }
await() { local end=$((SECONDS + 60)); until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || { echo "not up: $*" >&2; exit 1; }; sleep 0.1; done; }

mkdir "$dir/www" "$dir/nginx"
for size in 4K 16K 100M; do head -c $size /dev/urandom >"$dir/www/$size"; done
truncate -s 1G "$dir/www/1G"
for program in bare late world; do "${GO:-go}" build -o "$dir/$program" ./testdata/bench/$program; done
"$dir/world" "$dir/world.mbtiles" 8
"$pmtiles" convert "$dir/world.mbtiles" "$dir/www/world.pmtiles" >/dev/null 2>&1
rm "$dir/world.mbtiles"
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
plain=$(port) secure=$(port) caddy=$(port) tiles=$(port)
declare -A of=()
cat >"$dir/nginx.conf" <<END
$([ "$(id -u)" != 0 ] || echo "user root;") daemon off; worker_processes auto; pid $dir/nginx/pid; error_log $dir/nginx/error.log; events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; open_file_cache max=100; root $dir/www;
  client_body_temp_path $dir/nginx/a; proxy_temp_path $dir/nginx/b; fastcgi_temp_path $dir/nginx/c; uwsgi_temp_path $dir/nginx/d; scgi_temp_path $dir/nginx/e;
  server { listen 127.0.0.1:$plain; } server { listen 127.0.0.1:$secure ssl; ssl_certificate $dir/cert.pem; ssl_certificate_key $dir/key.pem; } }
END
nginx -p "$dir/nginx" -c "$dir/nginx.conf" -e "$dir/nginx/error.log" & pids+=($!) of[nginx]=$!
printf '{\n admin off\n auto_https off\n}\nhttp://127.0.0.1:%s {\n root * %s\n file_server\n}\n' "$caddy" "$dir/www" >"$dir/Caddyfile"
XDG_DATA_HOME=$dir XDG_CONFIG_HOME=$dir caddy run --config "$dir/Caddyfile" --adapter caddyfile 2>/dev/null & pids+=($!) of[caddy]=$!
"$pmtiles" serve testdata/packs --interface 127.0.0.1 --port "$tiles" >/dev/null 2>&1 & pids+=($!) of[pmtiles]=$!
"$dir/late" "127.0.0.1:$secure" 50ms >"$dir/late.port" & pids+=($!)
"$dir/bare" "$dir/www" >"$dir/bare.addr" & pids+=($!) of[bare]=$!
"$ronbox" --data-dir "$dir/d" init -q --packs "$PWD/testdata/packs"
await test -s "$dir/late.port"
far=localhost:$(cat "$dir/late.port")
RONBOX_SERVER__BIND=127.0.0.1:0 RONBOX_LOG__LEVEL=off RONBOX_EDGE__MODE=live RONBOX_EDGE__ALLOW=localhost:$secure,$far RONBOX_EDGE__ALLOW_PRIVATE=127.0.0.0/8,::1/128 \
  RONBOX_EDGE__CA_FILE=$dir/cert.pem RONBOX_EDGE__FILL__MAX_OBJECT_BYTES=2GiB "$ronbox" --data-dir "$dir/d" serve & pids+=($!)
node=$! of[ronbox]=$!
await curl -sf "http://127.0.0.1:$plain/4K"; await curl -sf "http://127.0.0.1:$caddy/4K"; await "$ronbox" --data-dir "$dir/d" edge packs
tile=stamen_toner_z3/0/0/0.png
await curl -sf "http://127.0.0.1:$tiles/$tile"
url=$("$ronbox" --data-dir "$dir/d" status --json | sed -n 's/.*"url":"\([^"]*\)".*/\1/p')
for f in 4K 16K 100M 1G; do "$ronbox" --data-dir "$dir/d" edge fill -q "https://localhost:$secure/$f"; done

declare -A base=([ronbox]="$url/edge/assets/localhost:$secure" [nginx]="http://127.0.0.1:$plain" [caddy]="http://127.0.0.1:$caddy" [bare]="http://$(cat "$dir/bare.addr")")
# ticks prints the CPU time of a server and its workers, in 1/100 s.
ticks() { local p n=0 t; for p in "$1" $(cat "/proc/$1/task/$1/children"); do t=$(awk '{print $14 + $15}' "/proc/$p/stat"); n=$((n + t)); done; echo $n; }
# load prints requests a second of a server, and its CPU time for one in µs.
load() {
  local who=$1 before; shift
  before=$(ticks "${of[$who]}")
  wrk -t1 -c50 -d"${seconds}s" "$@" >"$dir/wrk"
  awk -v ticks=$(($(ticks "${of[$who]}") - before)) '/requests in/ {n = $1} /Requests\/sec/ {r = $2} /Non-2xx/ {exit 1} END {printf "%d %.1f\n", r, ticks * 1e4 / n}' "$dir/wrk"
}
# row compares ronbox with other servers. It reads a name and a result for each, that of ronbox first, and prints how many times
# more requests it answers, and how many times more CPU time the other takes.
row() { awk -v title="$1" 'BEGIN { printf "%s\t", title }
  { printf "%s%s %d/s, %s µs", (NR > 1 ? "; " : ""), $1, $2, $3; if (NR == 1) { r = $2; c = $3 } else printf " (%.2f x, %.2f x)", r / $2, $3 / c } END { print "" }'; }
for what in "4K" "16K" "100M Range: bytes=50000000-50065535"; do
  read -r file range <<<"$what"
  for who in ronbox nginx caddy bare; do echo "$who $(load $who ${range:+-H "$range"} "${base[$who]}/$file")"; done | row "$what"
done
{ echo "ronbox $(load ronbox "$url/edge/tiles/$tile")"; echo "pmtiles $(load pmtiles "http://127.0.0.1:$tiles/$tile")"; } | row "tile of 18 KiB"
mkdir "$dir/site"
cp "$dir/www/4K" "$dir/www/16K" "$dir/site"
"$ronbox" --data-dir "$dir/d" edge publish -q "$dir/site" name:bench.example
for file in 4K 16K; do
  { echo "site $(load ronbox "$url/edge/sites/bench.example/$file")"; echo "asset $(load ronbox "${base[ronbox]}/$file")"; } | row "$file of a site"
done
# spent prints how long a command takes, in ms.
spent() { local began=${EPOCHREALTIME/./}; "$@" >/dev/null 2>&1; echo $(((${EPOCHREALTIME/./} - began) / 1000)); }
region=(--bbox=-170,-80,170,80 --maxzoom=8)
for i in 1 2 3; do
  spent "$ronbox" --data-dir "$dir/d" edge extract "https://$far/world.pmtiles" --name "extract$i" "${region[@]}" >>"$dir/ours"
  spent env SSL_CERT_FILE="$dir/cert.pem" "$pmtiles" extract "https://$far/world.pmtiles" "$dir/extract$i.pmtiles" "${region[@]}" >>"$dir/theirs"
done
awk -v r="$(sort -n "$dir/ours" | sed -n 2p)" -v p="$(sort -n "$dir/theirs" | sed -n 2p)" 'BEGIN { printf "extract of 200 MB\tronbox %d ms; pmtiles %d ms (%.2f x)\n", r, p, r / p }'
rss() { awk '/VmRSS/ {print int($2 / 1024)}' "/proc/$node/status"; }
idle=$(rss) most=0
downloads=()
for _ in $(seq 50); do curl -s -o /dev/null --limit-rate 100M "${base[ronbox]}/1G" & downloads+=($!); done
while kill -0 "${downloads[0]}" 2>/dev/null; do now=$(rss); [ "$now" -le $most ] || most=$now; sleep 0.2; done
wait "${downloads[@]}"
printf '50 downloads of 1 GiB\t%d MiB of memory beyond the %d MiB of before\n' $((most - idle)) "$idle"
"${GO:-go}" test ./engines/edge/... -run '^$' -bench 'Tile$' -benchtime "${seconds}00x" | grep '^Benchmark'
