#!/usr/bin/env bash
# run.sh [PYTEST ARGUMENTS]: run the tests of the images and the compose files.
#
# They use the engine that answers. Where none does, root on Debian gets one that lives as long as
# this script: in a network namespace of its own, with its data in a temporary folder, on a base image
# that debootstrap makes. The images are built before, on this host's network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
PATH="$PATH:/usr/sbin:/sbin"

# Without pytest's cache: another pytest may run beside this one, and repeat what failed.
tests() { WATTLOAD_TEST_ENGINE=required .venv/bin/python -m pytest -p no:cacheprovider "$@"; }

if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    tests tests/containers "$@"
    exit
fi
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
    echo "make docker-test needs Docker with compose and buildx; root on Debian gets them here" >&2
    exit 2
fi

say() { printf '%s\n' "$*" >&2; }
work=$(mktemp -d "${WATTLOAD_DOCKER:-/var/tmp}/wattload-docker.XXXXXX")
chmod 755 "$work"
engine=
# The engine is the first process of its namespaces: with it, the kernel ends all that it started
# and undoes its mounts.
stop() {
    if [[ -n $engine ]]; then
        kill "$(<"/proc/$engine/task/$engine/children")" 2>/dev/null || :
        wait "$engine" || :
        engine=
    fi
}
trap 'stop; rm -rf "$work"' EXIT
# start [UNSHARE OPTION] -- [DOCKERD OPTION]...
start() {
    unshare --mount --pid --fork --mount-proc --kill-child $1 sh -c 'ip link set lo up; exec "$@"' - \
        dockerd --data-root="$work/data" --exec-root="$work/exec" --pidfile="$work/pid" \
        --host="$DOCKER_HOST" "${@:2}" 2>"$work/dockerd.log" &
    engine=$!
    for _ in {1..150}; do
        ! docker info >/dev/null 2>&1 || return 0
        sleep 0.2
    done
    cat "$work/dockerd.log" >&2
    return 1
}

missing=()
for entry in dockerd:docker.io iptables:iptables debootstrap:debootstrap ip:iproute2; do
    command -v "${entry%%:*}" >/dev/null || missing+=("${entry##*:}")
done
if ((${#missing[@]})); then
    say "installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
export DOCKER_HOST=unix://$work/docker.sock DOCKER_CONFIG=$work/config

# Bookworm has compose version 1 and no buildx. Those of the next release run on it; they are
# unpacked, not installed, by an apt with lists of its own.
. /etc/os-release
if ! docker compose version >/dev/null 2>&1; then
    mkdir -p "$work/apt/lists/partial" "$work/apt/cache" "$DOCKER_CONFIG/cli-plugins"
    sed "s/$VERSION_CODENAME/trixie/g" /etc/apt/sources.list.d/debian.sources >"$work/apt/debian.sources"
    apt() { apt-get -q -q -o Dir::Etc::SourceList="$work/apt/debian.sources" -o Dir::Etc::SourceParts=- \
        -o Dir::State::Lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" "$@"; }
    apt update
    (cd "$work/apt" && apt download docker-compose docker-buildx 2>/dev/null)
    for package in "$work"/apt/*.deb; do dpkg -x "$package" "$work/apt/root"; done
    cp "$work"/apt/root/usr/libexec/docker/cli-plugins/* "$DOCKER_CONFIG/cli-plugins/"
fi

say "making a base image"
DPKG_FORCE=unsafe-io debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates "$VERSION_CODENAME" \
    "$work/base" "$(awk '$1 == "URIs:" {print $2; exit}' /etc/apt/sources.list.d/debian.sources)" \
    >"$work/debootstrap.log"
# This machine's ways to its mirror and index, for this base alone.
cp -r /etc/apt "$work/base/etc/"
rm -rf "$work/base/etc/apt/sources.list" "$work/base/var/cache/apt" "$work/base"/var/lib/apt/lists/*
cp /etc/ssl/certs/ca-certificates.crt "$work/base/etc/ssl/certs/"
[[ ! -e /etc/pip.conf ]] || cp /etc/pip.conf "$work/base/etc/"

start "" --bridge=none --iptables=false --ip6tables=false --ip-forward=false
tar -C "$work/base" -c . | docker import - wattload-test-base >/dev/null
rm -rf "$work/base"
# The wheel for CPUs, where pip finds it or from PyTorch.
torch=$(sed -n 's/^torch==.*/&+cpu/p' constraints.txt)
wheel() { .venv/bin/python -m pip download --quiet --no-deps --dest "$work/wheels" "$@" "$torch"; }
wheel 2>/dev/null || wheel --index-url https://download.pytorch.org/whl/cpu
export WATTLOAD_TEST_BASE=wattload-test-base WATTLOAD_TEST_BUILD_NETWORK=host WATTLOAD_TEST_WHEELS=$work/wheels
say "building the images"
tests tests/containers/test_images.py "$@"
stop
start --net
tests tests/containers --ignore=tests/containers/test_images.py "$@"
