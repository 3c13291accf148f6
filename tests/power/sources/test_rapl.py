from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.contracts.power_source import PowerSourceContract
from tests.power.energy_traces import integrate, traces
from tests.power.sources.sysfs_tree import powercap_tree
from wattload.core.errors import PowerError, PowerPermissionError
from wattload.core.power import Channel, Counter, Evidence, PowerSource, Sample, Scope
from wattload.core.sysfs import LIVE, Roots
from wattload.core.units import NS_PER_S
from wattload.power.energy.trace import TraceKey
from wattload.power.sources.rapl import find_zones, list_zones

SERVER = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "core",
    "intel-rapl:0:1": "dram",
    "intel-rapl:1": "package-1-die-0",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}
RANGE_J = 262143.32885


class TestRapl(PowerSourceContract):
    channels = frozenset({Channel.ENERGY_J})

    @pytest.fixture(autouse=True)
    def _tree(self, tmp_path: Path) -> None:
        self.roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})

    def make(self) -> PowerSource:
        (source,) = find_zones(self.roots, period_s=0.1)
        return source

    def break_reads(self, source: PowerSource) -> None:
        (self.roots.sys / "class/powercap/intel-rapl:0/energy_uj").write_text("")


def test_no_zone_is_read_that_lies_within_another(tmp_path: Path) -> None:
    zones = list_zones(powercap_tree(tmp_path, SERVER))
    assert [zone.key for zone in zones] == [
        "package-0",
        "package-0 dram",
        "package-1-die-0",
        "psys",
    ]


def test_psys_is_distinguished(tmp_path: Path) -> None:
    sources = find_zones(powercap_tree(tmp_path, SERVER), period_s=0.1)
    details = {source.facts().device: source.facts().detail for source in sources}
    assert "including the packages: never added" in details["psys"]
    assert "which its package does not include" in details["package-0 dram"]
    assert {source.facts().scope for source in sources} == {Scope.NODE}


def test_step_and_range_are_the_registers(tmp_path: Path) -> None:
    (source,) = find_zones(powercap_tree(tmp_path, {"intel-rapl:0": "package-0"}), period_s=0.1)
    source.open()
    sensor = source.facts().sensor
    source.close()
    assert isinstance(sensor, Counter)
    assert sensor.quantum_j == pytest.approx(2**-14, rel=1e-4)
    assert sensor.wrap_j == pytest.approx(RANGE_J)


def test_model_is_not_a_measurement(tmp_path: Path) -> None:
    amd = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"}, vendor="AuthenticAMD")
    (source,) = find_zones(amd, period_s=0.1)
    assert source.facts().evidence is Evidence.ESTIMATED
    assert "of a model, not a sensor" in source.facts().detail


def test_processor_that_is_not_told_is_taken_to_measure(tmp_path: Path) -> None:
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})
    (roots.proc / "cpuinfo").unlink()
    (source,) = find_zones(roots, period_s=0.1)
    assert source.facts().evidence is Evidence.SELF_REPORTED


def test_counter_that_wraps_loses_nothing(tmp_path: Path) -> None:
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})
    (source,) = find_zones(roots, period_s=1.0)
    source.open()
    counter = roots.sys / "class/powercap/intel-rapl:0/energy_uj"
    joules = (RANGE_J - 250 + 100 * np.arange(11)) % RANGE_J
    samples: list[Sample] = []
    for second, energy_j in enumerate(joules):
        counter.write_text(f"{round(energy_j * 1e6)}\n")
        (sample,) = source.read()
        samples.append(at(sample, second))
    source.close()
    trace = traces(samples)[TraceKey("rapl", "package-0", Channel.ENERGY_J)]
    result = integrate(trace, source.facts().sensor, 0, 10 * NS_PER_S, period_s=1.0)
    assert result.energy_j == pytest.approx(1000, rel=1e-3)
    assert min(sample.value or 0 for sample in samples) < 100


def at(sample: Sample, second: int) -> Sample:
    return Sample(
        time_ns=second * NS_PER_S,
        spread_ns=0,
        source=sample.source,
        device=sample.device,
        channel=sample.channel,
        value=sample.value,
        evidence=sample.evidence,
    )


def test_refusal_by_permission_is_its_own_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = find_zones(powercap_tree(tmp_path, {"intel-rapl:0": "package-0"}), period_s=0.1)

    def refuse(path: object, flags: int) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        PowerPermissionError, match=r"since CVE-2020-8694: start the sampler as root.*chmod a\+r"
    ):
        source.open()


@pytest.mark.parametrize(
    ("file", "text", "sentence"),
    [
        ("max_energy_range_uj", "0\n", "states an energy range of 0 uJ"),
        ("max_energy_range_uj", "?\n", "can't be read: .*not an integer"),
        ("energy_uj", "", "can't be read"),
    ],
)
def test_zone_that_makes_no_sense_is_refused(
    tmp_path: Path, file: str, text: str, sentence: str
) -> None:
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})
    (roots.sys / "class/powercap/intel-rapl:0" / file).write_text(text)
    (source,) = find_zones(roots, period_s=0.1)
    with pytest.raises(PowerError, match=sentence):
        source.open()


def test_host_without_zones_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(PowerError, match="no RAPL zone, as in most virtual machines"):
        find_zones(Roots(sys=tmp_path, proc=tmp_path), period_s=0.1)


def test_this_machines_own_zones_are_read_where_it_has_any() -> None:
    if not list_zones(LIVE) or os.geteuid() != 0:
        pytest.skip("this machine shows no RAPL zone, or not to this user")
    for source in find_zones(LIVE, period_s=0.1):
        source.open()
        (sample,) = source.read()
        source.close()
        assert sample.value is not None
        assert sample.value >= 0
