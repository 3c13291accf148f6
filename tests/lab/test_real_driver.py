"""Our bytes and our sampler against the kernel's own NVMe drivers, in the guest of `make lab`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model_host.drive import FIVE_STATES, Model, load, store
from tests.power.sampler_bench import ROOT
from tests.records import Scenario, make_run
from wattload.core.errors import PowerError, PowerStateError
from wattload.core.power import Channel
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.power.config import PowerConfig
from wattload.power.control.change import PowerStateControl
from wattload.power.control.host import PowerHost
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.state import read_state
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.samples import read_samples

MODELS = os.environ.get("WATTLOAD_LAB_MODELS", "")

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not MODELS, reason="runs in the guest of `make lab`"),
]

WAIT_S = 120
"""A guest without hardware acceleration is some 20 times slower than its host."""

PERMITTED = PowerConfig(state=1, period_s=0.1, allow_system_drive=True)
"""The guest's root is an overlay: whether a drive holds it can't be told."""

CLIENT = """
import sys, time
from pathlib import Path
from wattload.power.sampler.client import SamplerClient
from wattload.power.config import PowerConfig

runs, device = Path(sys.argv[1]), sys.argv[2]
client = SamplerClient.spawn(runs)
client.open(
"run-1",
    PowerConfig(state=1, period_s=0.1, allow_system_drive=True),
    devices=[device],
    block_devices=[device + "n1"],
)
client.start()
while client.status().tick_count < 2:
    time.sleep(0.1)
print("sampling", flush=True)
time.sleep(600)
"""


def controller(serial: str) -> str:
    for folder in Path("/sys/class/nvme").iterdir():
        if (folder / "serial").read_text().strip() == serial:
            return folder.name
    raise AssertionError(f"the guest has no controller {serial}")


@pytest.fixture
def qemu() -> str:
    return controller("QEMU0001")


@pytest.fixture
def model() -> Iterator[str]:
    path = Path(MODELS) / "tcp.json"
    store(path, Model())
    yield controller("MODEL0001")
    store(path, Model())


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    (folder / "run-1").mkdir(parents=True)
    record, _ = make_run(Scenario(run_id="run-1"))
    draft = record.model_copy(update={"spans": (), "checks": (), "limits": ()})
    (folder / "run-1/draft.json").write_text(draft.model_dump_json())
    return folder


def state_by_nvme_cli(device: str) -> int:
    told = subprocess.run(
        ["nvme", "get-feature", f"/dev/{device}", "-f", "2"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return int(told.rsplit(":", 1)[1], 16) & 0x1F


def wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


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


def test_stock_qemu_refuses_to_change_its_state(qemu: str, tmp_path: Path) -> None:
    control = PowerStateControl(NvmeAdmin(qemu), PowerHost().journal, run_id="r")
    with pytest.raises(PowerStateError, match=r"Feature Not Changeable \(NVMe status 0x410E\)"):
        control.set(0, holds_system=lambda _: False)
    control.close()
    assert PowerHost().journal.changes("run") == []


def test_guest_root_can_not_be_told_and_needs_leave(model: str) -> None:
    control = PowerStateControl(NvmeAdmin(model), PowerHost().journal, run_id="r")
    with pytest.raises(PowerStateError, match="allow_system_drive"):
        control.set(1, holds_system=PowerHost().holds_system)
    control.close()


def test_run_in_state_1_is_verified_sampled_and_restored(model: str, runs: Path) -> None:
    assert len(FIVE_STATES) == 5
    with SamplerClient.spawn(runs) as client:
        opened = client.open("run-1", PERMITTED, devices=[model], block_devices=[f"{model}n1"])
        assert opened.states[0].verified == 1
        assert opened.not_counted == {
            model: f"{model} has neither the OCP log C0h nor endurance groups"
        }
        assert state_by_nvme_cli(model) == 1
        client.start()
        target = Path(f"/dev/{model}n1")
        descriptor = os.open(target, os.O_RDWR)
        os.write(descriptor, bytes(1 << 20))
        os.fsync(descriptor)
        os.close(descriptor)
        ticks = client.status().tick_count
        wait_for(lambda: client.status().tick_count > ticks + 1)
        finished = client.finish()
    assert (finished.states[0].after, finished.states[0].restored) == (1, 0)
    assert state_by_nvme_cli(model) == 0
    samples = list(read_samples(*(runs / "run-1").glob("samples-*.jsonl")))
    assert {s.value for s in samples if s.channel is Channel.UPPER_W} == {18.0}
    written = [s.value for s in samples if s.channel is Channel.WRITTEN_BYTES]
    assert written[0] is not None
    assert written[-1] is not None
    assert written[-1] - written[0] >= 1 << 20


def test_change_by_another_tool_is_seen(model: str, runs: Path) -> None:
    with SamplerClient.spawn(runs) as client:
        client.open("run-1", PowerConfig(period_s=0.1), devices=[model], block_devices=[])
        client.start()
        subprocess.run(
            ["nvme", "set-feature", f"/dev/{model}", "-f", "2", "-v", "2"],
            check=True,
            capture_output=True,
        )
        ticks = client.status().tick_count
        wait_for(lambda: client.status().tick_count > ticks + 1)
        client.finish()
    samples = list(read_samples(*(runs / "run-1").glob("samples-*.jsonl")))
    states = [s.value for s in samples if s.channel is Channel.POWER_STATE]
    assert (states[0], states[-1]) == (0, 2)


def test_killed_process_group_leaves_the_old_state_and_a_record(model: str, runs: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(runs), model],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "sampling\n"
        assert state_by_nvme_cli(model) == 1
        os.killpg(process.pid, signal.SIGKILL)
    record = runs / "run-1" / RECORD_FILE
    wait_for(record.exists)
    assert state_by_nvme_cli(model) == 0
    written = read_record(record)
    assert written.status == "aborted"
    (state,) = [each for each in written.power.states if each.serial == "MODEL0001"]
    assert (state.requested, state.verified, state.after, state.restored) == (1, 1, 1, 0)


def test_killed_sampler_s_state_is_recovered(model: str, runs: Path) -> None:
    client = SamplerClient.spawn(runs)
    client.open("run-1", PERMITTED, devices=[model], block_devices=[])
    os.kill(client.pid, signal.SIGKILL)
    with pytest.raises(PowerError, match="the sampler ended with status -9"):
        client.start()
    assert state_by_nvme_cli(model) == 1
    (leftover,) = SamplerClient.recover("run-1")
    assert leftover.restored == 0
    assert state_by_nvme_cli(model) == 0
    client.close()


def test_command_line_sets_and_restores(model: str) -> None:
    def wattload(*words: str) -> str:
        command = [sys.executable, "-m", "wattload", "power", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout

    told = wattload("set", model, "1", "--allow-system-drive")
    assert "power state 0 -> 1, verified" in told
    assert state_by_nvme_cli(model) == 1
    assert "PS1" in wattload("watch", model, "--count", "1")
    assert "restored to power state 0" in wattload("restore", model)
    assert state_by_nvme_cli(model) == 0
    assert load(Path(MODELS) / "tcp.json").state == 0


def test_without_cap_sys_admin_the_capability_is_named(model: str) -> None:
    node = Path(f"/dev/{model}")
    node.chmod(0o666)
    script = (
        "import os, sys\n"
        "from wattload.core.errors import PowerPermissionError\n"
        "from wattload.power.nvme.admin import NvmeAdmin\n"
        "from wattload.power.nvme.features import read_power_state\n"
        "os.setuid(65534)\n"
        "try:\n"
        f"    read_power_state(NvmeAdmin({model!r}))\n"
        "except PowerPermissionError as error:\n"
        "    sys.stdout.write(str(error))\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ).stdout
    node.chmod(0o600)
    assert "CAP_SYS_ADMIN" in told
    assert "Identify" in told
