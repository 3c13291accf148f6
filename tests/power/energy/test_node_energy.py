"""Energy of a node or a GPU is reported in addition to a drive's and is never part of it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_facts import activity_of, facts, window
from tests.power.energy_traces import samples_of
from wattload.core.power import Counter, Evidence, Instant, Scope, SourceFacts
from wattload.core.record.energy import EnergyRecord, PowerSection
from wattload.core.record.summary import drive_energy
from wattload.power.energy.ledger import EnergyLedger

TIMES_S = np.arange(-2.0, 63.0)
READ = window("read", 0, 60)


def meter(
    name: str, device: str, scope: Scope, *, accuracy_percent: float = 1.0, is_counter: bool = False
) -> SourceFacts:
    return facts(
        name,
        Evidence.MEASURED if scope is Scope.DRIVE else Evidence.SELF_REPORTED,
        Counter(quantum_j=0.001) if is_counter else Instant(),
        device=device,
        scope=scope,
        accuracy_percent=accuracy_percent,
    ).model_copy(update={"period_s": 1.0})


def accounted(sources: dict[float, SourceFacts]) -> tuple[EnergyRecord, ...]:
    """Return the energies of sources, each at constant watts."""
    samples = [
        sample
        for watts, each in sources.items()
        for sample in samples_of(
            TIMES_S,
            watts * (TIMES_S + 10)
            if isinstance(each.sensor, Counter)
            else np.full(TIMES_S.size, watts),
            channel=each.figure_channel,
            source=each.name,
            device=each.device,
            evidence=each.evidence,
        )
    ]
    ledger = EnergyLedger(samples, list(sources.values()), host="host1", activity=activity_of(READ))
    return ledger.phase_records([READ])


def total_j(energy: tuple[EnergyRecord, ...]) -> float | None:
    section = PowerSection(requested="auto", choice="", idle_s=0, energy=energy)
    found: float | None = drive_energy(section, [READ])["energy_in_window_j"]
    return found


def test_total_is_the_drives_whatever_else_is_read() -> None:
    records = accounted(
        {
            12.0: meter("hwmon", "SERIAL1", Scope.DRIVE, accuracy_percent=5.0),
            150.0: meter("rapl", "package-0", Scope.NODE, is_counter=True),
            400.0: meter("redfish_power", "SERIAL1", Scope.NODE, accuracy_percent=0.1),
            70.0: meter("nvml_power", "GPU-1", Scope.GPU),
        }
    )
    assert total_j(records) == pytest.approx(12 * 60, rel=1e-6)
    energies = [each.energy_j for each in records if each.chosen]
    assert energies == pytest.approx([720, 9000, 24000, 4200])


def test_node_alone_gives_no_energy_of_a_drive() -> None:
    records = accounted({400.0: meter("ipmi", "bmc", Scope.NODE)})
    assert total_j(records) is None
    assert [each.chosen for each in records] == [True]
