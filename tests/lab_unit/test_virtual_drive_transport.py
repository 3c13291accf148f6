"""The virtual drive on its sockets: a process of its own, an initiator, the side socket."""

from __future__ import annotations

import csv
import os
import random
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.virtual_ssd.control import ask
from tests.lab.virtual_ssd.design import AMPLIFYING, Design
from tests.lab_unit.initiator import Completion, Initiator, entry

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60


@dataclass
class Served:
    folder: Path
    port: int

    @property
    def control(self) -> Path:
        return self.folder / "control.sock"


@contextmanager
def serving(folder: Path, serial: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "tests.lab.virtual_ssd", str(folder), "--serial", serial]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        port = folder / "port"
        deadline_s = time.monotonic() + WAIT_S
        while not port.exists():
            assert time.monotonic() < deadline_s
            assert process.poll() is None
            time.sleep(0.01)
        yield Served(folder, int(port.read_text()))
        process.terminate()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, Design().serial) as drive:
        yield drive


@pytest.fixture
def amplifying(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, AMPLIFYING.serial) as drive:
        yield drive


def test_registers_are_a_controller_s_that_becomes_ready(served: Served) -> None:
    host = Initiator(served.port)
    assert host.connected.result == 1
    assert host.register(0x08) == 0x00020300
    assert host.register(0x00) & 0xFFFF == 127
    assert host.register(0x1C) & 1 == 0
    host.configure(0x00460001)
    assert host.register(0x1C) & 1 == 1
    host.close()


def test_identify_and_smart_come_whole(served: Served) -> None:
    host = Initiator(served.port)
    identify = host.admin(0x06, 0x01, receive=4096)
    assert identify.status == 0
    assert identify.data[24:64].strip() == b"wattload virtual drive"
    smart = host.admin(0x02, 0x02 | 127 << 16, receive=512)
    assert (smart.status, len(smart.data)) == (0, 512)
    assert host.admin(0x7E, 0).status == 0x4001
    host.close()


@pytest.mark.parametrize(
    ("size_bytes", "in_capsule"), [(512, True), (8192, True), (8192, False), (1 << 20, False)]
)
def test_what_was_written_is_read_back(
    served: Served,
    size_bytes: int,
    in_capsule: bool,
) -> None:
    host = Initiator(served.port, queue=1)
    data = random.Random(1).randbytes(size_bytes)
    assert host.write(4096, data, in_capsule=in_capsule).status == 0
    assert host.read(4096, size_bytes).data == data
    assert host.read(4096 + size_bytes // 512, 512).data == bytes(512)
    facts = ask(served.control, "facts")
    assert facts["written_bytes"] == size_bytes
    host.close()


def test_blocks_outside_of_the_namespace_are_refused(served: Served) -> None:
    host = Initiator(served.port, queue=1)
    last = (2 << 30) // 512
    assert host.read(last - 1, 512).status == 0
    assert host.read(last, 512).status == 0x4080
    assert host.write(last, bytes(512)).status == 0x4080
    host.close()


def test_truth_of_a_window_is_that_of_its_bytes(served: Served) -> None:
    host = Initiator(served.port, queue=1)
    start_ns = ask(served.control, "facts")["now_ns"]
    for block in range(0, 6 * 2048, 2048):
        host.read(block, 1 << 20)
    end_ns = ask(served.control, "facts")["now_ns"]
    truth_j = ask(served.control, "energy", start_ns=start_ns, end_ns=end_ns)
    expected_j = 5.0 * (end_ns - start_ns) / 1e9 + 1.0e-6 * (6 << 20)
    assert truth_j == pytest.approx(expected_j, rel=1e-6)
    host.close()


def test_every_second_of_the_truth_is_written(served: Served) -> None:
    truth = served.folder / "truth.csv"
    deadline_s = time.monotonic() + WAIT_S
    while len(truth.read_text().splitlines()) < 3:
        assert time.monotonic() < deadline_s
        time.sleep(0.1)
    with truth.open() as file:
        rows = list(csv.DictReader(file))
    first, second = rows[:2]
    assert first["end_ns"] == second["start_ns"]
    assert int(first["start_ns"]) % 1_000_000_000 == 0
    assert float(first["energy_j"]) == pytest.approx(5.0)
    window = {name: int(first[name]) for name in ("start_ns", "end_ns")}
    assert ask(served.control, "energy", **window) == pytest.approx(5.0)


def test_state_changes_late_by_its_latency_and_is_lost_by_reset(served: Served) -> None:
    host = Initiator(served.port)
    host.configure(0x00460001)
    assert host.admin(0x09, 0x02, 1).status == 0
    assert host.admin(0x0A, 0x02).result == 1
    ask(served.control, "reset")
    with pytest.raises((EOFError, OSError)):
        host.admin(0x0A, 0x02)
    again = Initiator(served.port)
    assert again.register(0x1C) & 1 == 0
    assert again.admin(0x0A, 0x02).result == 0
    host.close()
    again.close()


def test_clearing_the_enable_bit_resets(served: Served) -> None:
    host = Initiator(served.port)
    host.configure(0x00460001)
    assert host.admin(0x09, 0x02, 2).status == 0
    host.configure(0x00460000)
    host.configure(0x00460001)
    assert host.admin(0x0A, 0x02).result == 0
    host.close()


def test_armed_faults_reach_the_wire(served: Served) -> None:
    host = Initiator(served.port)
    ask(served.control, "fault", opcode=0x0A, status=0x4006)
    assert host.admin(0x0A, 0x02).status == 0x4006
    ask(served.control, "lose_state")
    ask(served.control, "updates", kind="tumbling")
    ask(served.control, "stale", on=True)
    ask(served.control, "stale", on=False)
    ask(served.control, "ipm_stuck", on=True)
    ask(served.control, "jump", seconds=10)
    ask(served.control, "speed", factor=4.0)
    ask(served.control, "fault", opcode=0x0A, hold_s=0.01)
    assert host.admin(0x0A, 0x02).status == 0
    host.close()


def test_vanished_drive_takes_no_connection_until_it_is_back(served: Served) -> None:
    ask(served.control, "vanish", on=True)
    with pytest.raises((EOFError, OSError)):
        Initiator(served.port)
    ask(served.control, "vanish", on=False)
    Initiator(served.port).close()


@pytest.mark.parametrize(
    "request_", [{"do": "nothing"}, {"do": "updates", "kind": "?"}, {"do": "jump", "minutes": 1}]
)
def test_what_the_side_socket_does_not_know_is_an_error(
    served: Served, request_: dict[str, object]
) -> None:
    fields = dict(request_)
    with pytest.raises(ValueError, match="Error"):
        ask(served.control, str(fields.pop("do")), **fields)


def deallocate(host: Initiator, *ranges: tuple[int, int], hint: int = 1 << 2) -> Completion:
    """Send Dataset Management with ranges of first block and number of blocks."""
    data = b"".join(struct.pack("<IIQ", 0, count, first) for first, count in ranges)
    command = entry(0x09, 1, len(ranges) - 1, hint)
    return host.command(command, send=data, in_capsule=True)


def test_deallocated_pages_read_as_zeros_and_are_free(amplifying: Served) -> None:
    host = Initiator(amplifying.port, queue=1)
    page = AMPLIFYING.page_bytes
    blocks = page // 512
    for at in range(3):
        assert host.write(at * blocks, b"\xab" * page).status == 0
    assert ask(amplifying.control, "facts")["translated_bytes"] == [3 * page, 3 * page]
    assert deallocate(host, (0, 8 * blocks), hint=0).status == 0
    assert ask(amplifying.control, "facts")["used_bytes"] == 3 * page
    assert deallocate(host, (0, blocks), (2 * blocks, blocks)).status == 0
    assert ask(amplifying.control, "facts")["used_bytes"] == page
    assert host.read(0, page).data == bytes(page)
    assert host.read(blocks, page).data == b"\xab" * page
    assert host.read(2 * blocks, page).data == bytes(page)
    host.close()


def test_ranges_outside_of_the_namespace_are_refused_and_change_nothing(
    amplifying: Served,
) -> None:
    host = Initiator(amplifying.port, queue=1)
    assert host.write(0, b"\xab" * AMPLIFYING.page_bytes).status == 0
    beyond = AMPLIFYING.capacity_bytes // 512
    assert deallocate(host, (0, 64), (beyond, 1)).status == 0x4080
    assert ask(amplifying.control, "facts")["used_bytes"] == AMPLIFYING.page_bytes
    host.close()


def test_drive_without_a_translation_layer_deallocates_nothing(served: Served) -> None:
    host = Initiator(served.port, queue=1)
    assert deallocate(host, (0, 64)).status == 0x4001
    assert ask(served.control, "facts")["translated_bytes"] is None
    host.close()
