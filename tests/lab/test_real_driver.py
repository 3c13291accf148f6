"""Our bytes and our sampler against the kernel's own NVMe drivers, in the guest of `make lab`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.virtual_runs import ROOT, VIRTUAL, controller
from wattload.core.errors import PowerError, PowerStateError
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost
from wattload.power.control.undo import recover_changes
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.features import read_power_state
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.state import read_state
from wattload.power.sampler.client import SamplerClient

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]


@pytest.fixture
def qemu() -> str:
    return controller("QEMU0001")


def state(name: str) -> int:
    """Return the power state of a drive."""
    device = NvmeAdmin(name)
    try:
        return read_power_state(device)
    finally:
        device.close()


def test_stock_qemu_has_one_state_of_25_w(qemu: str) -> None:
    (state,) = identify_controller(NvmeAdmin(qemu)).power_states
    assert (state.max_w, state.idle_w) == (25.0, None)


def test_state_of_a_pcie_controller_is_read(qemu: str) -> None:
    device = NvmeAdmin(qemu)
    fields, missing = read_state(device)
    device.close()
    assert fields["power_state"] == 0
    assert fields["lba_bytes"] == 512
    assert fields["namespace_size_bytes"] == 256 << 20
    assert fields["smart"].temperature_k == 323
    assert "endurance groups" in missing["media_written_bytes"]


def test_stock_qemu_refuses_to_change_its_state(qemu: str) -> None:
    control = PowerStateControl(NvmeAdmin(qemu), PowerHost().journal, run_id="r")
    with pytest.raises(PowerStateError, match=r"Feature Not Changeable \(NVMe status 0x410E\)"):
        control.apply(PowerConfig(state=0), holds_system=lambda _: False)
    control.close()
    assert PowerHost().journal.changes("run") == []


def test_guest_root_can_not_be_told_and_needs_leave() -> None:
    control = PowerStateControl(NvmeAdmin(controller()), PowerHost().journal, run_id="r")
    with pytest.raises(PowerStateError, match="allow_system_drive"):
        control.apply(PowerConfig(state=1), holds_system=PowerHost().holds_system)
    control.close()


def test_killed_sampler_s_state_is_recovered(tmp_path: Path) -> None:
    name = controller()
    (tmp_path / "run-1").mkdir()
    client = SamplerClient.spawn(tmp_path)
    config = PowerConfig(state=1, allow_system_drive=True)
    client.open("run-1", config, devices=[name], block_devices=[])
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(PowerError, match="the sampler ended with status -9"):
        client.start()
    assert state(name) == 1
    (leftover,) = recover_changes()
    assert leftover.restored == 0
    assert state(name) == 0
    client.close()


def test_without_cap_sys_admin_the_capability_is_named() -> None:
    name = controller()
    node = Path(f"/dev/{name}")
    node.chmod(0o666)
    script = (
        "import os, sys\n"
        "from wattload.core.errors import PowerPermissionError\n"
        "from wattload.power.nvme.admin import NvmeAdmin\n"
        "from wattload.power.nvme.features import read_power_state\n"
        "os.setuid(65534)\n"
        "try:\n"
        f"    read_power_state(NvmeAdmin({name!r}))\n"
        "except PowerPermissionError as error:\n"
        "    sys.stdout.write(str(error))\n"
    )
    reported = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout
    node.chmod(0o600)
    assert "CAP_SYS_ADMIN" in reported
    assert "Identify" in reported
