#!/bin/sh
# In the guest: bring up the model's controller by the kernel's NVMe/TCP driver, run the lab's tests.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python="$root/.venv/bin/python"
cd "$root"
export PYTHONPATH="$root" PYTHONDONTWRITEBYTECODE=1 WATTLOAD_LAB_MODELS=/run/models
export WATTLOAD_STATE_DIR=/run/wattload-state
ip link set lo up
mkdir -p "$WATTLOAD_LAB_MODELS"
"$python" -m tests.lab.connect "$WATTLOAD_LAB_MODELS"
exec "$python" -m pytest tests/lab -m lab -v --color=no -p no:cacheprovider
