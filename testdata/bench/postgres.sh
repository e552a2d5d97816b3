#!/usr/bin/env bash
# Measures durable, idempotent transfers on a PostgreSQL of its own, on loopback, with prepared statements, synchronous_commit=on
# and the settings that its operators raise first. Usage: postgres.sh [SECONDS]. Needs Debian's package postgresql. Prints
# transfers a second: uniform over 10,000 accounts, over 10 hot ones, and in batches of 1,000, the last two with as many clients as
# the wallet has and with as many as suit locks better.
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
  -o "-c listen_addresses=127.0.0.1 -c port=$port -c unix_socket_directories=$home -c synchronous_commit=on -c max_connections=100 \
    -c shared_buffers=1GB -c max_wal_size=8GB -c wal_buffers=64MB -c jit=off -c client_min_messages=warning" start
trap 'as "$bin/pg_ctl" -D "$home/data" -s -m immediate stop; rm -rf "$home"' EXIT
run() { # name, accounts, script, transfers a call, clients
  db=${1//\//_}
  as "$bin/createdb" -h 127.0.0.1 -p "$port" -U bench "$db"
  as "$bin/psql" -h 127.0.0.1 -p "$port" -U bench -q -v accounts="$2" "$db" <"$here/postgres/schema.sql" >/dev/null
  cat "$here/postgres/$3" >"$home/$db.sql"
  chmod 644 "$home/$db.sql"
  # A client that met an error stops, and the run fails: its figures would flatter nobody.
  as "$bin/pgbench" -h 127.0.0.1 -p "$port" -U bench -n -M prepared -c "$5" -j 2 -T "$seconds" -D accounts="$2" -f "$home/$db.sql" "$db" 2>&1 |
    awk -v name="$1" -v each="$4" '/error|abort/ {print > "/dev/stderr"} /latency average/ {lat=$4}
      /^tps/ {printf "postgres/%s\t%.0f transfers/s\t%.2f ms a call\n", name, $3*each, lat}'
}
run uniform 10000 one.sql 1 64
run hot/64 10 one.sql 1 64
run hot/10 10 one.sql 1 10
run batched/4 10000 batch.sql 1000 4
run batched/2 10000 batch.sql 1000 2
