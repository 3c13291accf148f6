"""Counts of bytes: of block devices by the kernel, of drives by their own logs."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, store
from tests.model_host.power import Meter
from tests.power.sampler_bench import Bench, wait_for
from tests.power.sources.nvme_models import change
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Evidence
from wattload.core.sysfs import LIVE, Roots
from wattload.power.config import PowerConfig
from wattload.power.sampler import polling
from wattload.power.sampler.polling import BlockCounter, WrittenCounter
from wattload.power.sampler.samples import read_samples

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


UNITS = Meter(data_units_written=3, media_written_bytes=2_000_001)


def opened(folder: Path, model: Model) -> WrittenCounter:
    store(folder / "nvme0.json", model)
    counter = WrittenCounter(
        "nvme0", key="SERIAL1", open_device=lambda name: ModelDrive(folder, name)
    )
    counter.open()
    return counter


def counts(counter: WrittenCounter) -> dict[tuple[str, Channel], float | None]:
    samples = counter.read()
    assert all(sample.device == "SERIAL1" for sample in samples)
    assert all(sample.evidence is Evidence.SELF_REPORTED for sample in samples)
    return {(sample.source, sample.channel): sample.value for sample in samples}


def test_media_bytes_are_those_of_ocp_before_those_of_an_endurance_group(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(ocp=True, endurance_group=1, meter=UNITS))
    assert counts(counter) == {
        ("smart", Channel.HOST_WRITTEN_BYTES): 1_536_000,
        ("ocp", Channel.MEDIA_WRITTEN_BYTES): 2_000_001,
    }
    counter.close()


def test_without_ocp_an_endurance_group_counts(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(endurance_group=1, meter=UNITS))
    assert counts(counter)["endurance_group", Channel.MEDIA_WRITTEN_BYTES] == 7 * 10**9
    counter.close()


def test_a_drive_without_a_count_of_media_bytes_has_no_samples(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(meter=UNITS))
    assert counts(counter) == {("smart", Channel.HOST_WRITTEN_BYTES): 1_536_000}
    counter.close()


def test_counts_are_read_at_the_start_when_due_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = opened(tmp_path, Model(ocp=True, meter=UNITS))
    assert counts(counter)
    assert not counts(counter)
    counter.finish()
    assert counts(counter)
    monkeypatch.setattr(polling, "COUNTS_PERIOD_S", 0.0)
    counter.finish()
    assert counts(counter)
    assert counts(counter)
    counter.close()
    counter.close()


def test_a_failed_read_is_a_gap(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(ocp=True, meter=UNITS))
    change(tmp_path, gone=True)
    assert set(counts(counter).values()) == {None}
    counter.close()


def test_a_drive_whose_log_pages_stop_its_io_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="Get Log Page holds up other commands"):
        opened(tmp_path, Model(freezing=(0x02,)))


def test_a_run_has_the_counts_of_its_start_and_end_and_none_of_a_quiet_time(bench: Bench) -> None:
    client = bench.opened(PowerConfig(period_s=0.02))
    client.quiet(is_on=True)
    client.start()
    time.sleep(0.1)
    assert bench.round_count() == 0
    client.quiet(is_on=False)
    wait_for(lambda: bench.round_count() > 0)
    client.finish()
    samples = read_samples(bench.samples)
    found = [each for each in samples if each.channel is Channel.HOST_WRITTEN_BYTES]
    assert len(found) == 2
