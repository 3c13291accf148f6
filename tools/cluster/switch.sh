#!/bin/bash
# switch.sh FOLDER CHECKOUT NAME...: a bridge and the hosts on it, in network, mount and PID namespaces of
# their own. All of it ends when standard input does.
set -euo pipefail
folder=$1 checkout=$2
shift 2

mount -t tmpfs tmpfs /run # where ip keeps the names of network namespaces
ip link add switch type bridge
ip link set switch up
number=0
for name in "$@"; do
    number=$((number + 1))
    ip netns add "$name"
    ip link add "$name" type veth peer name eth0 netns "$name"
    ip link set "$name" master switch up
    ip -n "$name" address add "10.77.0.$number/24" dev eth0
    ip -n "$name" link set eth0 up
    ip -n "$name" link set lo up
    # Clocks that count the time since boot are apart, as those of machines are.
    ip netns exec "$name" unshare --uts --mount --pid --ipc --time --monotonic $(((number - 1) * 86400)) --fork \
        "$(dirname "$0")/host.sh" "$folder" "$name" "$checkout" </dev/null &
done
cat >/dev/null
