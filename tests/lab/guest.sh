#!/bin/sh
# In the guest: bring up the virtual drive by the kernel's NVMe/TCP driver, run the lab's tests.
# On the kernel's command line, lab_tests= is pytest's -m with commas for spaces, and lab_name= its
# -k alike. /out is the host's lab folder. A test that takes half an hour hangs: it shows where, and
# ends all. Tests of 20 s and more are listed at the end.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python="$root/.venv/bin/python"
cd "$root"
export PYTHONPATH="$root:$root/tests/plugin" PYTHONDONTWRITEBYTECODE=1 PYTHONFAULTHANDLER=1
export WATTLOAD_STATE_DIR=/run/wattload-state WATTLOAD_LAB_VIRTUAL=/run/virtual
export WATTLOAD_LAB_OUT=/run/out
# Where a test finds the modules that are not loaded at the start.
WATTLOAD_LAB_KERNEL=$(sed -n 's/.*lab_kernel=\([^ ]*\).*/\1/p' /proc/cmdline)
export WATTLOAD_LAB_KERNEL
ip link set lo up
hostname wattload-lab
mkdir -p "$WATTLOAD_LAB_VIRTUAL" "$WATTLOAD_LAB_OUT"
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out "$WATTLOAD_LAB_OUT"
"$python" -m tests.lab.connect "$WATTLOAD_LAB_VIRTUAL"
marks=$(sed -n 's/.*lab_tests=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
name=$(sed -n 's/.*lab_name=\([^ ]*\).*/\1/p' /proc/cmdline | tr , ' ')
exec "$python" -m pytest tests/lab -m "${marks:-lab}" -k "$name" -v --color=no -p no:cacheprovider \
  --durations=0 --durations-min=20 -o faulthandler_timeout=1800 -o faulthandler_exit_on_timeout=true
