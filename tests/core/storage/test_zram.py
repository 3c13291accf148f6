"""The guard on a zram device of its own, which counts what it stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.storage.drives import Bench
from tests.core.storage.loops import SIZE_BYTES
from wattload.core.errors import TargetError
from wattload.core.host.counters import RESET, ProcessTree, read_block_stats
from wattload.core.host.io_profile import profile
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.sysfs import Roots
from wattload.core.workload import Conditioning
from wattload.results.random_write.facts import Condition
from wattload.run.phases import PhaseRecorder, block_counters
from wattload.run.raw_drive import KnownDrive
from wattload.workloads.random_write.write_area import WriteArea, check_kept

CONTROL = Path("/sys/class/zram-control")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not CONTROL.exists(), reason="only root can add zram devices"
)


@pytest.fixture
def zram() -> Iterator[Path]:
    number = (CONTROL / "hot_add").read_text().strip()
    try:
        Path(f"/sys/block/zram{number}/disksize").write_text("16M")
        yield Path(f"/dev/zram{number}")
    finally:
        (CONTROL / "hot_remove").write_text(number)


def test_zram_is_empty_only_if_it_stores_nothing(zram: Path, tmp_path: Path) -> None:
    bench = Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state"))
    bench.accepted()
    bench.write(1 << 20, bytes(4096))
    assert "possibly data that sampling has missed" in bench.refused()
    bench.accepted("unsampled")


def test_a_zram_that_was_reset_is_no_longer_known(zram: Path, tmp_path: Path) -> None:
    bench = Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state"))
    bench.completed(nonce=41)
    bench.completed(nonce=42)
    reset(zram)
    bench.accepted()  # it stores nothing
    bench.stamp(nonce=42)
    words = "since run-42, the kernel's count of bytes written fell, so the device was reset"
    assert words in bench.refused()


def reset(zram: Path) -> None:
    Path(f"/sys/block/{zram.name}/reset").write_text("1")
    Path(f"/sys/block/{zram.name}/disksize").write_text("16M")


def test_a_reset_in_a_phase_leaves_its_counters_unknown(zram: Path, tmp_path: Path) -> None:
    bench = Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state"))
    bench.write(0, bytes(1 << 20))
    recorder = PhaseRecorder(
        host="here", rank=0, tree=ProcessTree(), read_stats=lambda: read_block_stats([zram.name])
    )
    with recorder.phase("write"):
        bench.write(0, bytes(2 << 20))
    with recorder.phase("reset"):
        reset(zram)
    written, fell = block_counters(recorder.spans)
    assert written.written_bytes == 2 << 20
    assert fell.written_bytes is None
    assert fell.busy_s is None
    assert fell.missing["written_bytes"] == RESET


def test_a_reset_in_a_profile_leaves_it_unknown(zram: Path, tmp_path: Path) -> None:
    Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state")).write(0, bytes(1 << 20))
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").touch()
    (tmp_path / "filesystems").touch()  # without tracefs, the counters are all there is
    with profile([zram.name], Roots(proc=tmp_path)) as found:
        reset(zram)
    assert found.result is not None
    assert found.result.source is None
    assert RESET in (found.result.reason or "")


def test_a_prepared_zram_that_was_reset_says_so(
    zram: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    bench = Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state"))
    bench.stamp(nonce=42)
    guard = bench.guard()
    guard.inspect()
    drive = KnownDrive(bench.target, guard)
    counted = drive.host_written_bytes()
    assert counted == (SIZE_BYTES, 512)
    history = Conditioning(
        block_bytes=131072,
        range_bytes=SIZE_BYTES,
        sequential_bytes=2 * SIZE_BYTES,
        ended_s=0.0,
        complete=True,
        nonce=42,
        host_written_bytes=counted[0],
    )
    area = WriteArea(path=zram, range_bytes=SIZE_BYTES, drive=drive, history=history)
    check_kept(area, Condition.keep)
    reset(zram)
    with pytest.raises(TargetError) as refused:
        check_kept(area, Condition.keep)
    assert str(refused.value) == (
        f"workload.condition=keep: the count of bytes written to {zram} fell from 16,777,216 to 0 "
        "since its conditioning, so it was reset or is another device; use "
        "workload.condition=sequential"
    )
