from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from wattload.core.errors import PowerError
from wattload.core.power import Channel
from wattload.core.sysfs import LIVE, Roots
from wattload.power.sampler.polling import BlockCounter

STAT = "  10 0 {read} 5 20 0 {written} 9 0 11 14 0 0 0 0 0 0\n"


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    (tmp_path / "class/block/vdx").mkdir(parents=True)
    return dataclasses.replace(LIVE, sys=tmp_path)


def write(roots: Roots, read: int, written: int) -> Path:
    path = roots.sys / "class/block/vdx/stat"
    path.write_text(STAT.format(read=read, written=written))
    return path


def values(counter: BlockCounter) -> list[float | None]:
    return [sample.value for sample in counter.read()]


def test_sectors_are_bytes_and_each_read_sees_the_counters_of_now(roots: Roots) -> None:
    write(roots, 1, 2)
    counter = BlockCounter("vdx", roots)
    counter.open()
    assert [sample.channel for sample in counter.read()] == [
        Channel.READ_BYTES,
        Channel.WRITTEN_BYTES,
    ]
    write(roots, 3, 4)
    assert values(counter) == [3 * 512, 4 * 512]
    counter.close()
    counter.close()


def test_device_that_vanishes_is_a_gap_and_one_that_returns_is_found(roots: Roots) -> None:
    path = write(roots, 1, 2)
    counter = BlockCounter("vdx", roots)
    counter.open()
    path.unlink()
    assert values(counter) == [None, None]
    path = write(roots, 5, 6)
    assert values(counter) == [5 * 512, 6 * 512]
    path.write_text("")
    assert values(counter) == [None, None]
    write(roots, 7, 8)
    assert values(counter) == [7 * 512, 8 * 512]
    counter.close()


def test_absent_device_is_refused_at_open(roots: Roots) -> None:
    with pytest.raises(PowerError, match="vdx can't be read"):
        BlockCounter("vdx", roots).open()


def test_real_device_counts() -> None:
    name = next(path.parent.name for path in Path("/sys/class/block").glob("*/stat"))
    counter = BlockCounter(name)
    counter.open()
    assert all(value is not None for value in values(counter))
    counter.close()
