"""In the guest: real runs of the suite on virtual drives, and what the drive says they used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.virtual_ssd.control import ask
from tests.run.running import call_here
from wattload.core.record.energy import EnergyRecord, SensorRecord
from wattload.core.record.file import JOURNAL_PATTERN, read_record
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.run.phases import REST_PHASE
from wattload.run.power_session import IDLE_AFTER_PHASE, IDLE_PHASE

ROOT = Path(__file__).resolve().parents[2]
VIRTUAL = os.environ.get("WATTLOAD_LAB_VIRTUAL", "")
OUT = Path(os.environ.get("WATTLOAD_LAB_OUT", "/nonexistent"))
SERIAL = "VIRTUAL0001"
INTERVAL_POWER = "nvme_ipm"
RUNS = Path("/run/runs")
FINISHED, CHECK_FAILED = 0, 3
NODE_WAIT_S, PHASE_WAIT_S = 120, 600
Intervals = Sequence[tuple[int, int]]
PREPARING = 100.0
"""How much faster the drive is while it is filled: what is left is the emulated processor."""

UNET3D = (
    "workload=unet3d",
    "scale=demo",
    "accelerator=unpaced",
    "workload.record_divisor=16",
    "workload.file_count=28",
    "workload.epochs=3",
)
"""257 MB read three times: 64 s in PS0, 96 s in PS1."""
CHECKPOINT = (
    "workload=checkpoint",
    "scale=demo",
    "workload.shrink_bytes=95000000",
    "workload.checkpoint_count=4",
    "workload.keep=4",
)
"""380 MB written without a pause, then read: 68 and 32 s in PS0, 102 and 48 s in PS1."""

POWER = (
    "power.allow_system_drive=true",
    "power.period_s=0.5",
    "power.idle_s=4",
    "power.quiet_s=2",
    "power.rest_max_s=10",
    "power.idle_after_s=14",
)
"""The guest's root is an overlay: whether a drive holds it can't be told. Its processor is emulated
and has one core for drive, driver, load and sampler, so it is sampled twice a second. The rest
holds all of the drive's destaging, and four seconds of idle time follow."""
CALIBRATING = (*POWER, "power.period_s=0.4", "power.idle_s=75")
"""The same for a run that calibrates the drive's meters in its idle time, as often as its pulses
need and as seldom as no reading is missing."""


def controller(serial: str = SERIAL) -> str:
    """Return the kernel's name of a controller by its serial."""
    for folder in Path("/sys/class/nvme").iterdir():
        if (folder / "serial").read_text().strip() == serial:
            return folder.name
    raise AssertionError(f"the guest has no controller {serial}")


def find_node(serial: str = SERIAL) -> Path:
    """Return the node of a drive's first namespace.

    The kernel looks for namespaces after it has connected. With several paths it names them after
    the subsystem, whose number may be that of a controller that has gone.
    """
    deadline_s = time.monotonic() + NODE_WAIT_S
    while True:
        for found in Path("/sys/block").glob("nvme*n1"):
            owner, node = found.resolve().parent, Path("/dev") / found.name
            try:
                is_drive = (owner / "serial").read_text().strip() == serial and node.exists()
            except FileNotFoundError:
                continue  # it is just going away
            if is_drive:
                return node
        assert time.monotonic() < deadline_s, f"the drive {serial} has no namespace"
        time.sleep(0.1)


def disconnect(serial: str) -> None:
    """Have the kernel remove a controller, and return once it and its namespace are gone."""
    folder, node = Path("/sys/class/nvme", controller(serial)), find_node(serial)
    (folder / "delete_controller").write_text("1")
    deadline_s = time.monotonic() + NODE_WAIT_S
    while folder.exists() or node.exists():
        assert time.monotonic() < deadline_s, f"{folder.name} does not go away"
        time.sleep(0.1)


def tell(command: list[str]) -> str:
    """Run a command that must succeed and return what it prints."""
    reported = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert reported.returncode == 0, f"{command}: {reported.stdout}{reported.stderr}"
    return reported.stdout


def wattload(
    *words: str, status: tuple[int, ...] = (FINISHED,), state_folder: Path | None = None
) -> str:
    """Run the command and return what it prints; ``status`` are the exit codes it may have.

    It runs in this process: an emulated processor would import for longer than it measures.
    """
    folder = state_folder or Path(os.environ["WATTLOAD_STATE_DIR"])
    reported = call_here(ROOT, *words, WATTLOAD_STATE_DIR=str(folder))
    assert reported.returncode in status, (
        f"{words}: {reported.returncode} {reported.stdout}{reported.stderr}"
    )
    return reported.stdout


@dataclass(frozen=True, kw_only=True)
class VirtualDrive:
    """A virtual drive that is connected: ``folder`` has its side socket."""

    serial: str
    folder: Path
    mount_point: Path

    def ask(self, do: str, **fields: Any) -> Any:
        """Ask the drive by its side socket."""
        return ask(self.folder / "control.sock", do, **fields)

    def mount(self) -> Path:
        """Return where the drive is mounted, made and mounted at the first call."""
        if not os.path.ismount(self.mount_point):
            node = find_node(self.serial)
            self.ask("speed", factor=PREPARING)
            options = "lazy_itable_init=1,lazy_journal_init=1,nodiscard"
            tell(["mkfs.ext4", "-q", "-J", "size=8", "-m", "0", "-E", options, str(node)])
            self.mount_point.mkdir()
            tell(["mount", "-o", "noatime,noinit_itable", str(node), str(self.mount_point)])
            self.ask("speed", factor=1.0)
        return self.mount_point

    def prepare(self, *workload: str) -> None:
        """Generate the data of a workload at a multiple of the drive's speed."""
        self.ask("speed", factor=PREPARING)
        wattload("datagen", *workload, f"target.path={self.mount()}")
        self.ask("speed", factor=1.0)

    def empty_cache(self) -> None:
        """Wait until every written byte is on the media."""
        while self.ask("facts")["dirty_bytes"]:
            time.sleep(0.1)


_DRIVE = VirtualDrive(serial=SERIAL, folder=Path(VIRTUAL), mount_point=Path("/run/virtual-drive"))
drive, mount, prepare = _DRIVE.ask, _DRIVE.mount, _DRIVE.prepare
"""The functions of the virtual drive that every guest has."""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A run of the suite and what the drive knows of it."""

    folder: Path
    record: RunRecord
    drive: VirtualDrive

    def truth_j(self, energy: EnergyRecord) -> float:
        """Return the true joules of the time that an energy record is of."""
        intervals = self._intervals(energy.phase) or ((energy.start_ns, energy.end_ns),)
        return self._between_j(intervals)

    def truth_tail_j(self, energy: EnergyRecord) -> float | None:
        """Return the true joules above idle power in the rests; ``None`` if no rest followed.

        The idle power is the true mean over the last idle time that the run recorded.
        """
        rests = self._intervals(REST_PHASE)
        if not rests or energy.tail_j is None:
            return None
        idle = (self._intervals(IDLE_AFTER_PHASE) or self._intervals(IDLE_PHASE))[-1:]
        idle_w = self._between_j(idle) / _seconds(idle)
        return self._between_j(rests) - idle_w * _seconds(rests)

    def energies(self) -> list[EnergyRecord]:
        """Return the virtual drive's energies by all sources: of phases, and of the whole run."""
        power = self.record.power
        found = (*power.energy, *power.whole_run)
        return [each for each in found if each.device == self.drive.serial]

    def energy(self, phase: str, source: str = INTERVAL_POWER) -> EnergyRecord:
        """Return the energy of a phase by a source."""
        of_source = [each for each in self.energies() if each.source == source]
        (found,) = [each for each in of_source if each.phase == phase]
        return found

    def sensor(self, source: str) -> SensorRecord:
        """Return the sensor of one of the drive's sources as its energies use it."""
        (found,) = [each for each in self.record.power.sources if each.name == source]
        assert found.sensor is not None
        return found.sensor

    def verdict(self, check: str) -> str:
        """Return the verdict of a check by its name."""
        (found,) = [each for each in self.record.checks if each.name == check]
        return found.verdict

    def _intervals(self, phase: str) -> Intervals:
        named = [each for each in self.record.windows if each.name == phase]
        return named[0].intervals if named else ()

    def _between_j(self, intervals: Intervals) -> float:
        return sum(
            float(self.drive.ask("energy", start_ns=start, end_ns=end)) for start, end in intervals
        )


def _seconds(intervals: Intervals) -> float:
    return sum(end - start for start, end in intervals) / NS_PER_S


def wait_for_phase(label: str, phase: str) -> None:
    """Wait until the run with this label has begun a phase, by its ranks' journals."""
    deadline_s = time.monotonic() + PHASE_WAIT_S
    while True:
        for journal in RUNS.glob(f"*-{label}-*/{JOURNAL_PATTERN}"):
            events = [json.loads(line) for line in journal.read_text().splitlines()]
            if any((each["event"], each.get("name")) == ("begin", phase) for each in events):
                return
        assert time.monotonic() < deadline_s, f"no phase {phase} of {label}"
        time.sleep(0.2)


def run(
    *words: str,
    state: int | None,
    label: str,
    updates: str = "sliding",
    power: tuple[str, ...] = POWER,
    on: VirtualDrive = _DRIVE,
    state_folder: Path | None = None,
) -> Ran:
    """Run a workload on a virtual drive in a power state; a failed check is not held against it.

    An emulated processor fails checks of what a host should manage. Meters are calibrated in the
    first run with a state folder; unless it is named, each kind of updates has its own.
    """
    on.ask("updates", kind=updates)
    reported = wattload(
        "run",
        *words,
        *power,
        *(() if state is None else (f"power.state={state}",)),
        f"target.path={on.mount()}",
        f"runs={RUNS}",
        f"label={label}",
        "--json",
        status=(FINISHED, CHECK_FAILED),
        state_folder=state_folder or Path(f"/run/wattload-state-{updates}"),
    )
    path = Path(json.loads(reported.splitlines()[-1])["record"])
    if OUT.exists():  # what a failed test judged can be looked at
        shutil.copytree(path.parent, OUT / "all-runs" / path.parent.name, dirs_exist_ok=True)
    return Ran(folder=path.parent, record=read_record(path), drive=on)
