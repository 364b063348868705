#!/bin/bash
# What the entry point of the image `postgres` does, of that what compose.yaml needs: an empty data directory is made with
# POSTGRES_USER, POSTGRES_PASSWORD and POSTGRES_DB, the scripts of /docker-entrypoint-initdb.d run against a server that listens
# on its socket alone, and then the server starts for real.
set -euo pipefail
if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    printf '%s\n' "$POSTGRES_PASSWORD" > /tmp/password
    # shellcheck disable=SC2086  several arguments
    initdb --pgdata="$PGDATA" --username="$POSTGRES_USER" --pwfile=/tmp/password --auth=scram-sha-256 \
        --auth-local=trust ${POSTGRES_INITDB_ARGS:-}
    rm /tmp/password
    # With the arguments of the real start, as the published image does: pg_hba.conf and certificates must do for this, too.
    pg_ctl --pgdata="$PGDATA" --wait start \
        --options="$(printf '%q ' "${@:2}" -c listen_addresses= -c unix_socket_directories=/var/run/postgresql)"
    export PGHOST=/var/run/postgresql PGPASSWORD="$POSTGRES_PASSWORD"
    [ "$POSTGRES_DB" = postgres ] || psql -X -U "$POSTGRES_USER" -d postgres -c "create database \"$POSTGRES_DB\""
    for script in /docker-entrypoint-initdb.d/*.sql; do
        [ -e "$script" ] || continue
        echo "running $script"
        psql -X -v ON_ERROR_STOP=1 --no-psqlrc -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$script"
    done
    pg_ctl --pgdata="$PGDATA" --mode=fast --wait stop
    unset PGHOST PGPASSWORD
fi
[ "${1:-}" = postgres ] && set -- "$@" -c "listen_addresses=*" -c unix_socket_directories=/var/run/postgresql
exec "$@"
