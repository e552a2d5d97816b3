#!/usr/bin/env bash
# Measures durable, idempotent transfers on a PostgreSQL of its own, on loopback, with its defaults and synchronous_commit=on.
# Usage: postgres.sh [SECONDS]. Needs Debian's package postgresql. Prints transfers a second: uniform over 10,000 accounts,
# over 10 hot ones, and in batches of 1,000.
set -euo pipefail
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1) || true
[ -x "${bin:-}/postgres" ] || { echo "PostgreSQL is missing: apt-get install postgresql" >&2; exit 69; }
home=$(mktemp -d "${TMPDIR:-/tmp}/ronbox-pg.XXXXXX")
as() { "$@"; }
if [ "$(id -u)" = 0 ]; then # it refuses to run as root
  as() { runuser -u postgres -- "$@"; }
  chown postgres "$home"
fi
port=$((20000 + RANDOM % 20000))
cd "$home" # which its user may read
as "$bin/initdb" -D "$home/data" -A trust -U bench --no-sync >/dev/null
as "$bin/pg_ctl" -D "$home/data" -s -w -l "$home/log" \
  -o "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$home -c synchronous_commit=on -c max_connections=100" start
trap 'as "$bin/pg_ctl" -D "$home/data" -s -m immediate stop; rm -rf "$home"' EXIT
run() { # name, accounts, script, transfers a call, clients
  as "$bin/createdb" -h 127.0.0.1 -p "$port" -U bench "$1"
  as "$bin/psql" -h 127.0.0.1 -p "$port" -U bench -q -v accounts="$2" "$1" <"$here/postgres/schema.sql" >/dev/null
  cat "$here/postgres/$3" >"$home/$1.sql"
  chmod 644 "$home/$1.sql"
  as "$bin/pgbench" -h 127.0.0.1 -p "$port" -U bench -n -M prepared -c "$5" -j 2 -T "$seconds" -D accounts="$2" -f "$home/$1.sql" "$1" 2>&1 |
    awk -v name="$1" -v each="$4" '/latency average/ {lat=$4} /^tps/ {printf "postgres/%s\t%.0f transfers/s\t%.2f ms a call\n", name, $3*each, lat}'
}
run uniform 10000 one.sql 1 64
run hot 10 one.sql 1 64
run batched 10000 batch.sql 1000 2
