"""Settling, on a model of a host whose time and traffic follow from the quotas."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from tests.record_machine import read
from wattload.core.errors import RunError
from wattload.core.record.host import LoadLevel
from wattload.loaders.engine.load import PERIOD_US
from wattload.run.host_load.config import Busy
from wattload.run.host_load.settling import Peak, Settled, Settling

CPUS = 16
PEAK_BYTES = 100e9
PER_S = CPUS * 1e6 / PERIOD_US


@dataclass
class Host:
    """A host of 16 CPUs that move 100 GB/s when all copy.

    ``other`` is the share of CPU time that another program takes, ``limit`` a quota of the load's
    group, and ``steps`` the levels' lengths.
    """

    other: float = 0.0
    other_bytes: float = 0.0
    limit: float = 1.0
    copied: float = 0.0
    units: float = 0.0
    steps: list[float] = field(default_factory=list)

    def set_quotas(self, copy_bytes: int, units: int) -> None:
        self.copied, self.units = copy_bytes * PER_S, units * PER_S

    def measure(self, seconds: float) -> LoadLevel:
        self.steps.append(seconds)
        wanted = self.copied * 2 / PEAK_BYTES * 1.2 + self.units / 8e6
        done = min(wanted, self.limit, 1.0 - self.other)
        fraction = done / wanted if wanted else None
        traffic = self.copied * 2 * (fraction or 0.0) + self.other_bytes
        values = {"work_fraction": fraction} if fraction is not None else {}
        return read(
            LoadLevel,
            "not in the model",
            host="box",
            window="alone",
            start_ns=0,
            end_ns=1,
            cpu_share=done + self.other,
            other_cpu_share=self.other,
            steal_share=0.0,
            memory_bytes_per_s=traffic,
            memory_share=traffic / PEAK_BYTES,
            **values,
        )


def settle(host: Host, **settings: float) -> Settled:
    config = Busy(**settings)  # type: ignore[arg-type]  # one has a text, which is not set
    peak = Peak(traffic_bytes_per_s=PEAK_BYTES, copied_bytes_per_s=50e9, units_per_s=8e6)
    return Settling(
        config,
        cpu_count=CPUS,
        peak=peak,
        reference_bytes_per_s=PEAK_BYTES,
        set_quotas=host.set_quotas,
        measure=host.measure,
    ).settle()


@pytest.mark.parametrize(("cpu", "memory"), [(0.86, 0.5), (0.3, 0.1), (0.95, 0.7), (0.5, 0.0)])
@pytest.mark.parametrize("other", [0.0, 0.1])
def test_both_shares_are_reached_with_what_else_runs(
    cpu: float, memory: float, other: float
) -> None:
    host = Host(other=other, other_bytes=2e9 if memory else 0.0)
    settled = settle(host, cpu_share=cpu, memory_share=memory)
    assert settled.alone.cpu_share == pytest.approx(cpu, abs=0.02)
    assert settled.alone.memory_share == pytest.approx(memory, abs=0.03)
    assert host.steps[-1] == 10.0
    assert settled.quotas.copied_bytes_per_s == host.copied


def test_other_programs_are_named() -> None:
    sentence = (
        r"the host reached 0\.95 of CPU, 0\.86 asked: other processes take 0\.95 of the CPUs; stop "
        r"them, or give the run CPUs of its own \(taskset\)"
    )
    host = Host(other=0.95, limit=0.0)
    with pytest.raises(RunError, match=sentence):
        settle(host, memory_share=0.0)
    assert len(host.steps) == 1  # waiting would change nothing


def test_other_programs_are_not_named_for_idle_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattload.run.host_load.settling.cpu_limit", lambda roots: (None, ""))
    sentence = r"the host reached 0\.46 of CPU, 0\.86 asked: the load's threads did only 0\.\d\d of"
    with pytest.raises(RunError, match=sentence):
        settle(Host(other=0.1, limit=0.36))


def test_a_quota_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = "wattload.run.host_load.settling.cpu_limit"
    monkeypatch.setattr(limit, lambda roots: (0.71 * CPUS, ""))
    with pytest.raises(RunError, match=r"0\.71 of CPU, 0\.86 asked: a CPU quota of 11\.36 cores"):
        settle(Host(limit=0.71))


def test_too_little_cpu_time_for_the_copies_is_named() -> None:
    with pytest.raises(RunError, match=r"copies alone take more; use a smaller load\.memory_share"):
        settle(Host(), cpu_share=0.3, memory_share=0.5)


def test_time_that_runs_out_ends_it() -> None:
    host = Host()
    host.limit = 0.7
    with pytest.raises(RunError, match=r"the host reached 0\.70 of CPU, 0\.86 asked"):
        settle(host, settle_max_s=1.0)
