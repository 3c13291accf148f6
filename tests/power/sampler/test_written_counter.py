"""A drive's own counts of written bytes: which log has them, when they are read, and their gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.model_host.drive import Model, ModelDrive, store
from tests.model_host.power import Meter
from tests.power.sampler_bench import Bench, wait_for
from tests.power.sources.nvme_models import change
from wattload.core.errors import PowerError
from wattload.core.power import Channel, Evidence
from wattload.power.config import PowerConfig
from wattload.power.sampler import written_counter
from wattload.power.sampler.samples import read_samples
from wattload.power.sampler.written_counter import WrittenCounter

UNITS = Meter(data_units_written=3, media_written_bytes=2_000_001)


def opened(folder: Path, model: Model) -> WrittenCounter:
    store(folder / "nvme0.json", model)
    counter = WrittenCounter(
        "nvme0", key="SERIAL1", open_device=lambda name: ModelDrive(folder, name)
    )
    counter.open()
    return counter


def values(counter: WrittenCounter) -> dict[tuple[str, Channel], float | None]:
    samples = counter.read()
    assert all(sample.device == "SERIAL1" for sample in samples)
    assert all(sample.evidence is Evidence.SELF_REPORTED for sample in samples)
    return {(sample.source, sample.channel): sample.value for sample in samples}


def test_media_bytes_are_those_of_ocp_before_those_of_an_endurance_group(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(ocp=True, endurance_group=1, meter=UNITS))
    assert values(counter) == {
        ("smart", Channel.HOST_WRITTEN_BYTES): 1_536_000,
        ("ocp", Channel.MEDIA_WRITTEN_BYTES): 2_000_001,
    }
    counter.close()


def test_without_ocp_an_endurance_group_counts(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(endurance_group=1, meter=UNITS))
    assert values(counter)["endurance_group", Channel.MEDIA_WRITTEN_BYTES] == 7 * 10**9
    counter.close()


def test_a_drive_without_a_count_of_media_bytes_has_no_samples(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(meter=UNITS))
    assert values(counter) == {("smart", Channel.HOST_WRITTEN_BYTES): 1_536_000}
    counter.close()


def test_counts_are_read_at_the_start_when_due_and_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = opened(tmp_path, Model(ocp=True, meter=UNITS))
    assert values(counter)
    assert not values(counter)
    counter.finish()
    assert values(counter)
    monkeypatch.setattr(written_counter, "PERIOD_S", 0.0)
    counter.finish()
    assert values(counter)
    assert values(counter)
    counter.close()
    counter.close()


def test_a_failed_read_is_a_gap(tmp_path: Path) -> None:
    counter = opened(tmp_path, Model(ocp=True, meter=UNITS))
    change(tmp_path, gone=True)
    assert set(values(counter).values()) == {None}
    counter.close()


def test_a_drive_whose_log_pages_stop_its_io_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="Get Log Page holds up other commands"):
        opened(tmp_path, Model(freezing=(0x02,)))


def test_a_run_has_the_counts_of_its_start_and_end_and_none_of_a_quiet_time(bench: Bench) -> None:
    client = bench.opened(PowerConfig(period_s=0.02))
    client.quiet(is_on=True)
    client.start()
    wait_for(lambda: client.status().tick_count >= 5)
    quiet_count = client.status().sample_count
    client.quiet(is_on=False)
    wait_for(lambda: client.status().sample_count > quiet_count)
    client.finish()
    samples = read_samples(bench.samples)
    counts = [each for each in samples if each.channel is Channel.HOST_WRITTEN_BYTES]
    assert len(counts) == 2
    assert quiet_count == 0
