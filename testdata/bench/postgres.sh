#!/usr/bin/env bash
# Measures durable, idempotent transfers on a PostgreSQL of its own, on loopback, with prepared statements, synchronous_commit=on
# and the settings that its operators raise first: uniform over 10,000 accounts, over 10 hot ones, and in batches of 1,000.
# Usage: postgres.sh [SECONDS]. Needs Debian's package postgresql. Prints transfers a second,
#   postgres/engine/...   of the bare engine: pgbench calls the functions of schema.sql, with as many clients as the wallet has, and with
#                         as many as suit locks better;
#   postgres/service/...  of the same service as the wallet (postgres/service), which calls the same functions: the wallet's own callers
#                         drive it over HTTP. The last number is that of its connections to the database.
set -euo pipefail
seconds=${1:-10}
here=$(cd "$(dirname "$0")" && pwd)
go=${GO:-go}
bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1) || true
[ -x "${bin:-}/postgres" ] || { echo "PostgreSQL is missing: apt-get install postgresql" >&2; exit 69; }
home=$(mktemp -d "${TMPDIR:-/tmp}/ronbox-pg.XXXXXX")
trap 'rm -rf "$home"' EXIT
"$go" build -C "$here/postgres/service" -o "$home/service" . || {
  echo "The service on PostgreSQL cannot be built. Its modules are not those of ronbox: where there is a network, run once" >&2
  echo "  $go mod download -C $here/postgres/service" >&2
  exit 69
}
(cd "$here/../.." && "$go" test -c -o "$home/callers" ./cmd/ronbox/server/load)
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
service=
stop() { # the service, if it runs
  [ -z "$service" ] || { kill "$service" && wait "$service"; } || true
  service=
}
trap 'stop; as "$bin/pg_ctl" -D "$home/data" -s -m immediate stop; rm -rf "$home"' EXIT

fresh() { # database, accounts
  as "$bin/createdb" -h 127.0.0.1 -p "$port" -U bench "$1"
  as "$bin/psql" -h 127.0.0.1 -p "$port" -U bench -q -v accounts="$2" "$1" <"$here/postgres/schema.sql" >/dev/null
}

engine() { # name, accounts, script, transfers a call, clients
  db=engine_${1//\//_}_$5
  fresh "$db" "$2"
  cat "$here/postgres/$3" >"$home/$db.sql"
  chmod 644 "$home/$db.sql"
  # A client that met an error stops, and the run fails: its figures would flatter nobody.
  as "$bin/pgbench" -h 127.0.0.1 -p "$port" -U bench -n -M prepared -c "$5" -j 2 -T "$seconds" -D accounts="$2" -f "$home/$db.sql" "$db" 2>&1 |
    awk -v name="$1/$5" -v each="$4" '/error|abort/ {print > "/dev/stderr"} /latency average/ {lat=$4}
      /^tps/ {printf "postgres/engine/%s\t%.0f transfers/s\t%.2f ms a call\n", name, $3*each, lat}'
}

service() { # name, connections to the database
  db=service_${1//\//_}_$2
  fresh "$db" 10000
  coproc { SERVICE_TOKEN=loopback exec "$home/service" -pool "$2" -db "host=127.0.0.1 port=$port user=bench dbname=$db sslmode=disable"; }
  service=$COPROC_PID
  read -r addr <&"${COPROC[0]}" || { echo "The service on PostgreSQL does not start" >&2; exit 1; }
  pattern="^BenchmarkMoney$/^postgres$/^${1//\//$/^}$"
  (cd "$here/../../cmd/ronbox/server/load" && RONBOX_BENCH_POSTGRES="$addr loopback" "$home/callers" -test.run '^$' -test.bench "$pattern" -test.benchtime "${seconds}s") |
    awk -v after="/$2" -f "$here/rows.awk" | sed 's|^postgres/|postgres/service/|'
  stop
}

engine uniform 10000 one.sql 1 64
engine hot 10 one.sql 1 64
engine hot 10 one.sql 1 10
engine batched 10000 batch.sql 1000 4
engine batched 10000 batch.sql 1000 2
for pool in 64 32 16; do service single/uniform $pool; done
for pool in 64 16 8; do service single/hot $pool; done
for pool in 4 2; do service batch/json $pool; done
