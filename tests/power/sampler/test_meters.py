"""The sampler with a node's meter and a drive: a BMC that hangs delays no sample of the drive."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.sampler_bench import RUN_ID, Bench, wait_for
from tests.power.sources.fake_bmc import PASSWORD, USER, Certificate, FakeBmc
from wattload.core.power import Channel, Sample, Scope
from wattload.power.config import PowerConfig, RedfishConfig
from wattload.power.sampler.samples import read_samples
from wattload.power.sources.redfish import PASSWORD_VARIABLE, USER_VARIABLE


@pytest.fixture
def bmc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBmc]:
    monkeypatch.setenv(USER_VARIABLE, USER)
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    folder = tmp_path / "bmc"
    folder.mkdir()
    served = FakeBmc(Certificate.make(folder, "DNS:localhost"))
    yield served
    served.gate.set()
    served.close()


def test_bmc_that_hangs_delays_no_sample_and_is_read_at_the_end(
    bench: Bench, bmc: FakeBmc, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    redfish = RedfishConfig(url=bmc.url, ca_file=str(bmc.certificate.certificate))
    config = PowerConfig(source="nvme", period_s=0.01, beside=["redfish"], redfish=redfish)
    client = bench.spawn()
    opened = client.open(RUN_ID, config, devices=["nvme0"], block_devices=[])
    scopes = {each.facts.scope for each in opened.sources if each.used and each.facts}
    assert scopes == {Scope.DRIVE, Scope.NODE}
    bmc.gate.clear()
    requested = len(bmc.requested)
    client.start()
    wait_for(lambda: len(bmc.requested) > requested)
    rounds = bench.round_count()
    wait_for(lambda: bench.round_count() > rounds + 20)
    assert not of_node(bench)
    bmc.gate.set()
    client.finish()
    client.close()
    assert {sample.channel for sample in of_node(bench)} == {Channel.POWER_W, Channel.ENERGY_J}
    assert {s.value for s in of_node(bench) if s.channel is Channel.POWER_W} == {374.5}
    reported = [
        path.read_text(errors="replace") for path in bench.runs.rglob("*") if path.is_file()
    ]
    assert reported
    assert not any(PASSWORD in text for text in (*reported, opened.model_dump_json(), caplog.text))


def of_node(bench: Bench) -> list[Sample]:
    samples = read_samples(bench.run / "samples-host-1.jsonl")
    return [sample for sample in samples if sample.source.startswith("redfish")]
