"""The guard on a zram device of its own, which counts what it stores."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.storage.test_guard import Bench
from wattload.core.storage.raw_writes import RawWriteLog

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
    assert "perhaps data that sampling has missed" in bench.refused()
    bench.accepted("unsampled")


def test_a_zram_that_was_reset_is_no_longer_known(zram: Path, tmp_path: Path) -> None:
    bench = Bench(zram, Path(zram.name), RawWriteLog(tmp_path / "state"))
    bench.completed(nonce=41)
    bench.completed(nonce=42)
    Path(f"/sys/block/{zram.name}/reset").write_text("1")
    Path(f"/sys/block/{zram.name}/disksize").write_text("16M")
    bench.accepted()  # it stores nothing
    bench.stamp(nonce=42)
    words = "since run-42, the kernel's count of bytes written fell, so the device was reset"
    assert words in bench.refused()
