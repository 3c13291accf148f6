"""The command on a raw virtual drive that collects garbage, by the kernel's own NVMe driver.

The drive connects to this guest alone. Its own counts and its true energy judge the records. The
tests are in order: each finds the drive as the one before it left it. Most call the command in this
process, as an emulated processor needs half a minute to import it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from tests.lab.connect import attach_virtual, connect
from tests.lab.truth_table import EDGE_S
from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    INTERVAL_POWER,
    OUT,
    ROOT,
    VIRTUAL,
    VirtualDrive,
    controller,
    disconnect,
    find_node,
    tell,
)
from tests.lab.virtual_ssd.design import AMPLIFYING
from wattload.__main__ import main
from wattload.core.record.energy import EnergyRecord, WrittenRecord
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.run import RunRecord
from wattload.core.storage.raw_writes import Begin, End, RawWriteLog
from wattload.power.control.journal import default_state_folder
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.identify import identify_namespace

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

SERIAL = AMPLIFYING.serial
CAPACITY_BYTES = AMPLIFYING.capacity_bytes
PHASE, STEADY = "random_write", "steady"
REFUSED = 2
SPEED = 3.0
"""How much faster the drive is in short runs, at the same joules per byte."""
WAIT_S = 300
GONE_S = 60.0
"""How soon a run must have failed after its drive went away, on an emulated processor."""
PART_BYTES = 4 << 20
ENDLESS = ("workload.condition=none", "workload.passes=50")
LONG = ("workload.draw=uniform", "workload.passes=14", "workload.rate_bytes_per_s=900000")
"""520 s: the counts are read every 10 s or seldomer, and 5 % may be at the edges."""
RUNS = Path("/run/random-write")


@dataclass(kw_only=True)
class Counts:
    """The drive's own count of host and media bytes over time."""

    rows: list[tuple[int, int, int]] = field(default_factory=list)

    def between(self, start_ns: int, end_ns: int) -> tuple[float, float]:
        """Return the host and the media bytes of an interval."""
        times, host, media = np.array(self.rows, dtype=np.float64).T
        edges = np.array([start_ns, end_ns], dtype=np.float64)
        host_bytes, media_bytes = (np.diff(np.interp(edges, times, each)) for each in (host, media))
        return float(host_bytes[0]), float(media_bytes[0])


@contextmanager
def counted(drive: VirtualDrive) -> Iterator[Counts]:
    """Read the drive's own counts twice a second."""
    counts, ended = Counts(), threading.Event()

    def read() -> None:
        while True:
            facts = drive.ask("facts")
            counts.rows.append((facts["now_ns"], *facts["translated_bytes"]))
            if ended.wait(0.5):
                return

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield counts
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run on the drive: its record, and the drive's own counts meanwhile."""

    record: RunRecord
    counts: Counts

    def window(self, phase: str) -> PhaseWindow:
        (found,) = [each for each in self.record.windows if each.name == phase]
        return found

    def written(self, phase: str) -> WrittenRecord:
        (found,) = [
            each
            for each in self.record.power.written
            if (each.device, each.phase) == (SERIAL, phase)
        ]
        return found

    def energies(self, phase: str) -> list[EnergyRecord]:
        """Return the energies of a phase by the sources that measured it."""
        return [
            each
            for each in self.record.power.energy
            if (each.device, each.phase) == (SERIAL, phase) and each.energy_j is not None
        ]


def command(*more: str) -> list[str]:
    """Return the words of a run; a drive on a network is one that other hosts may write to.

    Blank blocks between ours, which the tests leave, may hide data from the guard's samples.
    """
    return [
        "run",
        "workload=random_write",
        "workload.block_bytes=16384",
        "target=block",
        f"target.path={find_node(SERIAL)}",
        f"target.serial={SERIAL}",
        "target.shared=true",
        "target.overwrite=[unsampled]",
        "target.max_write_bytes=2000000000",
        "power.allow_system_drive=true",
        "power.period_s=0.25",
        "power.idle_s=2",
        "power.quiet_s=1",
        "power.rest_max_s=4",
        "power.idle_after_s=6",
        f"runs={RUNS}",
        "--json",
        *more,
    ]


def run(drive: VirtualDrive, capsys: pytest.CaptureFixture[str], *more: str) -> Measured:
    """Run to the end; an emulated processor fails checks of hosts."""
    with counted(drive) as counts:
        status = main(command(*more))
    reported = capsys.readouterr()
    assert status in (FINISHED, CHECK_FAILED), reported.err
    record = read_record(Path(json.loads(reported.out.splitlines()[-1])["record"]))
    assert record.status == "complete"
    return Measured(record=record, counts=counts)


@contextmanager
def writing(drive: VirtualDrive, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run as a process of its own and wait until its writes are under way."""
    before = drive.ask("facts")["translated_bytes"][0]
    with subprocess.Popen(
        [sys.executable, "-m", "wattload", *command(*ENDLESS, *more)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
    ) as started:
        try:
            wait_for(
                lambda: (
                    started.poll() is not None
                    or drive.ask("facts")["translated_bytes"][0] >= before + PART_BYTES
                ),
                "the run writes nothing",
            )
            assert started.poll() is None, started.communicate()[0]
            yield started
        finally:
            started.kill()


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, otherwise
        time.sleep(0.1)


def used_bytes() -> int:
    admin = NvmeAdmin(controller(SERIAL))
    try:
        return identify_namespace(admin, 1).used_bytes
    finally:
        admin.close()


def last_rows() -> tuple[Begin, End | None]:
    """Return the last run in the log of raw writes, and its end if that is known."""
    log = RawWriteLog(default_state_folder()).of_drive(SERIAL)
    return log.begins[-1], log.ends.get(log.begins[-1].run_id)


def noted_random_bytes() -> int:
    """Return the random bytes since the drive's conditioning, as noted for later runs."""
    notes = json.loads((default_state_folder() / f"drive-{SERIAL}.json").read_text())
    return int(notes["conditioning"]["random_bytes"])


def report(line: str) -> None:
    """Keep a finding beside the lab's other results."""
    with (OUT / "random-write.txt").open("a", encoding="utf-8") as file:
        file.write(line + "\n")


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualDrive]:
    folder = tmp_path_factory.mktemp("random-write")
    attach_virtual(folder, AMPLIFYING)
    (OUT / "random-write.txt").unlink(missing_ok=True)
    drive = VirtualDrive(serial=SERIAL, folder=folder, mount_point=folder / "mounted")
    drive.mount_point.mkdir()
    drive.ask("speed", factor=SPEED)
    yield drive
    disconnect(SERIAL)  # another module connects a drive of the same subsystem


def test_a_plan_tells_what_is_on_the_drive(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    assert used_bytes() == 0
    words = ["target=block", f"target.path={find_node(SERIAL)}", "workload.block_bytes=16384"]
    assert main(["plan", "random_write", *words]) == FINISHED
    reported = capsys.readouterr().out
    assert "no signature; sampled blocks: 1,026 blank" in reported
    assert "4 drive writes" in reported
    assert "give target.serial=" in reported
    assert "is attached by tcp; make sure that none does, and add target.shared=true" in reported
    assert SERIAL not in reported
    assert drive.ask("facts")["translated_bytes"] == [0, 0]


@pytest.mark.lab_long
def test_energy_and_bytes_of_a_run_are_the_truth(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(drive, capsys)
    verdicts = {each.name: each.verdict for each in found.record.checks}
    report(f"failed checks: {[name for name, verdict in verdicts.items() if verdict == 'fail']}")
    assert verdicts["written_blocks"] == "pass"
    window, written = found.window(PHASE), found.written(PHASE)
    assert window.written_bytes == 2 * CAPACITY_BYTES
    assert found.window("condition").written_bytes == 2 * CAPACITY_BYTES
    assert drive.ask("facts")["translated_bytes"][0] == 4 * CAPACITY_BYTES
    assert used_bytes() == CAPACITY_BYTES
    # The counts are read every 10 s: too seldom for this phase, which the record says.
    assert written.media_source == "ocp"
    assert written.write_amplification is None
    assert "between two readings of the count" in written.missing["write_amplification"]
    truth_j = drive.ask("energy", start_ns=window.start_ns, end_ns=window.end_ns)
    measured = found.energies(PHASE)
    assert {each.source for each in measured} >= {INTERVAL_POWER}
    for energy in measured:
        assert energy.energy_j is not None
        report(
            f"{window.seconds:.1f} s at random: {energy.energy_j:.2f} J by {energy.source}, "
            f"{truth_j:.2f} true, {energy.energy_j / window.written_bytes * 1e9:.0f} J/GB"
        )
        known_j = math.hypot(*energy.uncertainty_parts_j.values())
        edges_j = EDGE_S * truth_j / window.seconds
        assert energy.energy_j == pytest.approx(truth_j, abs=known_j + edges_j), energy.source
        if energy.source == INTERVAL_POWER:  # log C0h has whole watts
            assert energy.energy_j == pytest.approx(truth_j, rel=0.005)


@pytest.mark.lab_long
def test_a_conditioned_drive_is_kept_until_others_write_to_it(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("workload.condition=keep", "workload.passes=1")
    before = drive.ask("facts")["translated_bytes"][0]
    record = run(drive, capsys, *words).record
    after = drive.ask("facts")["translated_bytes"][0]
    assert after - before == CAPACITY_BYTES
    # As it was when the random writes began, and as they left it.
    assert record.targets[0].history.preconditioning_bytes == 4 * CAPACITY_BYTES
    assert noted_random_bytes() == 3 * CAPACITY_BYTES
    tell(["dd", "if=/dev/zero", f"of={find_node(SERIAL)}", "bs=1M", "count=2", "oflag=direct"])
    assert main(command(*words)) == REFUSED
    reported = capsys.readouterr().err
    assert "were written to" in reported
    assert "since its conditioning" in reported
    assert drive.ask("facts")["translated_bytes"][0] == after + (2 << 20)


@pytest.mark.lab_long
def test_a_killed_run_is_in_the_log_and_the_drive_is_free(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    with writing(drive) as started:
        started.kill()
    start_s = time.monotonic()
    wait_for(lambda: last_rows()[1], "the killed run has no end in the log of raw writes")
    report(f"end in the log {time.monotonic() - start_s:.1f} s after a kill")
    begin, end = last_rows()
    assert end is not None
    assert end.status == "aborted"
    assert end.written_bytes is not None
    assert end.written_bytes >= PART_BYTES
    file = RUNS / begin.run_id / RECORD_FILE
    wait_for(file.exists, "the killed run has no record")
    assert read_record(file).status == "aborted"
    node, folder = str(find_node(SERIAL)), str(drive.mount_point)
    tell(["mkfs.ext4", "-q", "-F", node])
    tell(["mount", node, folder])
    tell(["umount", folder])
    assert main(command(*ENDLESS)) == REFUSED
    assert "holds ext4" in capsys.readouterr().err
    tell(["wipefs", "--all", node])
    tell(["blkdiscard", node])


@pytest.mark.lab_long
def test_a_discard_frees_the_drive_and_a_format_is_refused(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    few = (f"workload.range_bytes={PART_BYTES}", "workload.condition=none", "workload.passes=1")
    run(drive, capsys, f"workload.range_bytes={2 * PART_BYTES}", *few[1:])
    assert used_bytes() >= 2 * PART_BYTES
    found = run(drive, capsys, "workload.purge=discard", *few)
    purge = found.record.workload.facts["purged"]
    assert purge["sent"] == f"BLKDISCARD of {CAPACITY_BYTES} bytes"
    assert purge["reads_as"] == "sampled blocks: 1,026 blank"
    assert used_bytes() == PART_BYTES
    # The virtual drive has no Format NVM and does not list its allocated namespaces.
    counts = drive.ask("facts")["translated_bytes"]
    assert main(command("workload.purge=format", *few)) != FINISHED
    reported = capsys.readouterr().err
    assert "is not formatted" in reported
    assert "use workload.purge=discard" in reported
    assert drive.ask("facts")["translated_bytes"] == counts


@pytest.mark.lab_long
def test_a_run_fails_at_once_when_its_drive_goes(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    name = find_node(SERIAL).name
    with writing(drive) as started:
        start_s = time.monotonic()
        disconnect(SERIAL)
        reported, _ = started.communicate(timeout=WAIT_S)
        gone_s = time.monotonic() - start_s
    report(f"failed {gone_s:.1f} s after the drive went: {reported.splitlines()[-4:]}")
    connect(AMPLIFYING.subsystem, int((drive.folder / "port").read_text()))
    find_node(SERIAL)
    begin, end = last_rows()
    assert started.returncode not in (FINISHED, CHECK_FAILED)
    assert gone_s < GONE_S
    assert "Traceback" not in reported
    assert name in reported
    assert end is not None
    assert end.status == "failed"
    assert read_record(RUNS / begin.run_id / RECORD_FILE).status == "failed"
    assert str(RUNS) not in tell(["ps", "-e", "-o", "args"])
    run(drive, capsys, f"workload.range_bytes={PART_BYTES}", "workload.condition=none")


@pytest.mark.lab_long
def test_amplification_is_the_drive_s_own(
    drive: VirtualDrive, capsys: pytest.CaptureFixture[str]
) -> None:
    drive.ask("speed", factor=1.0)
    tell(["blkdiscard", str(find_node(SERIAL))])
    found = run(drive, capsys, *LONG)
    drive.ask("speed", factor=SPEED)
    window, written = found.window(PHASE), found.written(PHASE)
    host_bytes, media_bytes = found.counts.between(window.start_ns, window.end_ns)
    truth_j = drive.ask("energy", start_ns=window.start_ns, end_ns=window.end_ns)
    report(
        f"{window.seconds:.0f} s at random, uniform: WAF {written.write_amplification} by the "
        f"record ({written.missing}), {media_bytes / host_bytes:.4f} by the drive's own count"
    )
    for energy in found.energies(PHASE):
        report(f"  {energy.energy_j:.2f} J by {energy.source}, {truth_j:.2f} true")
    report(f"  steady: {json.dumps(found.record.workload.facts['steady'])}")
    assert written.host_written_bytes == pytest.approx(host_bytes, rel=0.02)
    assert written.media_written_bytes == pytest.approx(media_bytes, rel=0.02)
    assert written.write_amplification == pytest.approx(media_bytes / host_bytes, rel=0.02)
    for energy in found.energies(PHASE):
        known_j = math.hypot(*energy.uncertainty_parts_j.values())
        edges_j = EDGE_S * truth_j / window.seconds
        assert energy.energy_j == pytest.approx(truth_j, abs=known_j + edges_j), energy.source
        if energy.source == INTERVAL_POWER:  # log C0h has whole watts
            assert energy.energy_j == pytest.approx(truth_j, rel=0.005)
