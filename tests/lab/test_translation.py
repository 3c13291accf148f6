"""Random writes to a raw virtual drive that collects garbage: what our readings make of them.

The drive's own count and its true energy judge write amplification and joules. It is small, so that
it can be overwritten in seconds, and connects to this guest alone.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.connect import attach_virtual
from tests.lab.virtual_runs import (
    OUT,
    PREPARING,
    VIRTUAL,
    VirtualDrive,
    controller,
    disconnect,
    find_node,
    tell,
)
from tests.lab.virtual_ssd.design import AMPLIFYING
from wattload.power.nvme.admin import NvmeAdmin, fetch
from wattload.power.nvme.features import set_command
from wattload.power.nvme.identify import identify_namespace
from wattload.power.nvme.logs import read_ocp_smart
from wattload.power.nvme.measurement import (
    POWER_MEASUREMENT,
    START,
    STOP,
    read_power_measurement,
)
from wattload.power.nvme.smart import read_smart

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

LEAD_BYTES = 4_000_000
"""Host bytes before the window: fio is running and the cache is full."""
WINDOW_BYTES = 60_000_000
"""Host bytes of the window: at least 27 s, and SMART's data units are 0.9 % of them."""
NS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Counters:
    """At one time: what the drive states, and its own count of host and media bytes."""

    time_ns: int
    smart_bytes: int
    ocp_bytes: int
    counted_bytes: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Window:
    """Random writes under way: counters at both ends, and the drive's own measurement between."""

    start: Counters
    end: Counters
    measured_j: float
    measured_truth_j: float
    truth_j: float

    @property
    def seconds(self) -> float:
        return (self.end.time_ns - self.start.time_ns) / NS

    @property
    def stated_amplification(self) -> float:
        """By log C0h and SMART, as our decoders read them."""
        return (self.end.ocp_bytes - self.start.ocp_bytes) / (
            self.end.smart_bytes - self.start.smart_bytes
        )

    @property
    def true_amplification(self) -> float:
        """By the drive's own count."""
        host, media = (
            end - start
            for start, end in zip(self.start.counted_bytes, self.end.counted_bytes, strict=True)
        )
        return media / host

    @property
    def reckoned_j(self) -> float:
        """Joules by the design's energy per second, host byte and media byte."""
        return (
            AMPLIFYING.states[0].idle_w * self.seconds
            + AMPLIFYING.write_j_per_byte * (self.end.smart_bytes - self.start.smart_bytes)
            + AMPLIFYING.destage_j_per_byte * (self.end.ocp_bytes - self.start.ocp_bytes)
        )

    def write(self, path: Path) -> None:
        """Keep the figures beside the lab's other results."""
        path.write_text(
            f"window: {self.seconds:.1f} s\n"
            f"amplification: {self.stated_amplification:.4f} by C0h and SMART, "
            f"{self.true_amplification:.4f} by the drive's own count\n"
            f"joules: {self.measured_j:.2f} by log 25h, {self.measured_truth_j:.2f} true; "
            f"{self.reckoned_j:.2f} by counters, {self.truth_j:.2f} true\n"
        )


def fio(node: Path, *options: str) -> list[str]:
    return [
        "fio",
        "--name=lab",
        f"--filename={node}",
        "--direct=1",
        "--ioengine=libaio",
        "--thread=1",
        "--norandommap=1",
        "--output-format=terse",
        *options,
    ]


def wait_for_bytes(drive: VirtualDrive, count: int) -> None:
    """Wait until the host has written so many more bytes, however fast the emulated processor."""
    start_bytes, _ = drive.ask("facts")["translated_bytes"]
    while drive.ask("facts")["translated_bytes"][0] < start_bytes + count:
        time.sleep(0.5)


def counters(drive: VirtualDrive, admin: NvmeAdmin) -> Counters:
    smart, ocp, facts = read_smart(admin), read_ocp_smart(admin), drive.ask("facts")
    return Counters(
        time_ns=time.monotonic_ns(),
        smart_bytes=smart.written_bytes,
        ocp_bytes=ocp.media_written_bytes,
        counted_bytes=tuple(facts["translated_bytes"]),
    )


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualDrive]:
    folder = tmp_path_factory.mktemp("amplifying")
    attach_virtual(folder, AMPLIFYING)
    yield VirtualDrive(serial=AMPLIFYING.serial, folder=folder, mount_point=Path("/nonexistent"))
    disconnect(AMPLIFYING.serial)


@pytest.fixture(scope="module")
def node(drive: VirtualDrive) -> Path:
    return find_node(drive.serial)


@pytest.fixture(scope="module")
def admin(node: Path) -> Iterator[NvmeAdmin]:
    opened = NvmeAdmin(controller(AMPLIFYING.serial))
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def window(drive: VirtualDrive, node: Path, admin: NvmeAdmin) -> Window:
    """Fill the drive twice in sequence and once at random, then write at its own speed."""
    drive.ask("speed", factor=PREPARING)
    tell(fio(node, "--rw=write", "--bs=128k", "--iodepth=4", "--loops=2"))
    tell(fio(node, "--rw=randwrite", "--bs=16k", "--iodepth=32"))
    drive.ask("speed", factor=1.0)
    options = ("--bs=16k", "--iodepth=32", "--time_based", "--runtime=3600", "--randseed=7")
    with subprocess.Popen(
        fio(node, "--rw=randwrite", *options), stdout=subprocess.DEVNULL
    ) as writing:
        wait_for_bytes(drive, LEAD_BYTES)
        start = counters(drive, admin)
        fetch(admin, set_command(POWER_MEASUREMENT, "start", value=START | 10 << 16))
        measured_ns = time.monotonic_ns()
        wait_for_bytes(drive, WINDOW_BYTES)
        log = read_power_measurement(admin)
        end = counters(drive, admin)
        fetch(admin, set_command(POWER_MEASUREMENT, "stop", value=STOP))
        assert writing.poll() is None
        writing.terminate()
    assert log.average.watts is not None
    found = Window(
        start=start,
        end=end,
        measured_j=log.average.watts * log.count,
        measured_truth_j=drive.ask(
            "energy", start_ns=measured_ns, end_ns=measured_ns + log.count * NS
        ),
        truth_j=drive.ask("energy", start_ns=start.time_ns, end_ns=end.time_ns),
    )
    found.write(OUT / "translation.txt")
    return found


def test_the_kernel_sees_pages_and_that_they_can_be_deallocated(node: Path) -> None:
    queue = Path("/sys/block", node.name, "queue")
    assert int((queue / "minimum_io_size").read_text()) == AMPLIFYING.page_bytes
    assert int((queue / "discard_max_bytes").read_text()) > 0


def test_amplification_by_our_logs_is_the_drive_s_own_count(window: Window) -> None:
    assert 2.0 < window.true_amplification < 3.0
    assert window.stated_amplification == pytest.approx(window.true_amplification, rel=0.02)


def test_joules_by_the_drive_s_own_measurement_are_the_truth(window: Window) -> None:
    assert window.measured_j == pytest.approx(window.measured_truth_j, rel=0.01)


def test_joules_are_of_time_host_bytes_and_media_bytes(window: Window) -> None:
    assert window.reckoned_j == pytest.approx(window.truth_j, rel=0.01)


def test_discarded_drive_takes_random_writes_without_amplification(
    drive: VirtualDrive, node: Path, admin: NvmeAdmin, window: Window
) -> None:
    assert window.seconds > 0  # the drive is full
    assert identify_namespace(admin, 1).used_bytes == AMPLIFYING.capacity_bytes
    tell(["blkdiscard", str(node)])
    assert identify_namespace(admin, 1).used_bytes == 0
    drive.ask("speed", factor=PREPARING)
    before = drive.ask("facts")["translated_bytes"]
    tell(fio(node, "--rw=randwrite", "--bs=16k", "--iodepth=32"))
    after = drive.ask("facts")["translated_bytes"]
    drive.ask("speed", factor=1.0)
    assert after[1] - before[1] == after[0] - before[0] == AMPLIFYING.capacity_bytes
