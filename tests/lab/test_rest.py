"""The rest behind the work, on a virtual drive that empties an SLC cache for 16 s once it is full.

The drive connects to this guest alone. Its own account of energy and of bytes in the cache judges
what a run says of the window and of the tail, and whether measuring power changes what it measures.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.connect import attach_virtual
from tests.lab.virtual_runs import INTERVAL_POWER, POWER, VIRTUAL, Ran, VirtualDrive, run
from tests.lab.virtual_ssd.design import SLC
from wattload.results.checkpoint.facts import READ_PHASE, WRITE_PHASE
from wattload.run.phases import REST_PHASE

pytestmark = [
    pytest.mark.lab,
    pytest.mark.lab_long,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-all`"),
]

SAVES = ("workload=checkpoint", "scale=demo", "workload.checkpoint_count=3", "workload.keep=3")
"""72 MB in 32 s, of which 29 MB at the full rate, then read in 6 s: 15 MB remain in the cache."""
ONE_SAVE = (*SAVES, "workload.checkpoint_count=1", "workload.keep=1")
"""24 MB in 4 s, which fit the cache, read in 2 s: 15 MB remain."""
DESTAGING_W = SLC.destage_share * SLC.states[0].write_bytes_per_s * SLC.destage_j_per_byte
WITHIN = 0.005


def measured(rest_s: float, idle_after_s: float) -> tuple[str, ...]:
    """Return the settings of a measured run with a rest and idle time of these lengths."""
    times = (f"power.rest_max_s={rest_s:g}", f"power.idle_after_s={idle_after_s:g}")
    return (*POWER, *times)


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> VirtualDrive:
    folder = tmp_path_factory.mktemp("slc")
    attach_virtual(folder, SLC)
    made = VirtualDrive(serial=SLC.serial, folder=folder, mount_point=Path("/run/virtual-slc"))
    made.mount()
    return made


@pytest.fixture(scope="module")
def watched(drive: VirtualDrive) -> Ran:
    """A run whose rest holds all of the destaging."""
    drive.empty_cache()
    return run(*SAVES, state=None, label="watched", power=measured(16, 20), on=drive)


def test_rates_are_the_same_with_power_on_and_off(watched: Ran, drive: VirtualDrive) -> None:
    """A pause of 10 s between two saves would make writing twice as fast."""
    drive.empty_cache()
    off = run(*SAVES, state=None, label="off", power=("power=none",), on=drive)
    windows = [{each.name: each for each in ran.record.windows} for ran in (watched, off)]
    for phase in (WRITE_PHASE, READ_PHASE):
        on_s, off_s = (each[phase].active_s for each in windows)
        assert on_s == pytest.approx(off_s, rel=0.2), phase
    assert REST_PHASE not in windows[1]
    (rest,) = windows[0][REST_PHASE].intervals
    assert rest[0] == max(each.end_ns for each in watched.record.timed_windows())


def test_destaging_is_in_the_tail_and_not_in_the_window(watched: Ran) -> None:
    energy = watched.energy(READ_PHASE)
    truth_j = watched.truth_tail_j(energy)
    assert energy.rest_s == pytest.approx(16)
    assert truth_j is not None
    assert truth_j > 5.0
    assert energy.tail_j == pytest.approx(truth_j, abs=energy.tail_uncertainty_j)
    assert energy.energy_j == pytest.approx(watched.truth_j(energy), abs=energy.uncertainty_j)
    assert not energy.is_at_least


def test_the_last_phase_has_the_tail_of_the_rest(watched: Ran) -> None:
    energy = watched.energy(WRITE_PHASE)
    assert energy.tail_j is None
    assert READ_PHASE in energy.missing["tail_j"]
    assert energy.energy_j == pytest.approx(watched.truth_j(energy), rel=WITHIN)


def test_tail_of_a_drive_that_is_still_busy_is_at_least_that(drive: VirtualDrive) -> None:
    drive.empty_cache()
    ran = run(*ONE_SAVE, state=None, label="short", power=measured(4, 0), on=drive)
    energy = ran.energy(READ_PHASE)
    assert energy.is_at_least
    assert energy.tail_j == pytest.approx(4 * DESTAGING_W, abs=energy.tail_uncertainty_j)


def test_drive_that_does_not_return_to_idle_widens_its_uncertainty(drive: VirtualDrive) -> None:
    """Idle power behind the rest is then that of destaging, and the tail could be all of it.

    A processor that begins a phase's work late adds to the uncertainty.
    """
    drive.empty_cache()
    ran = run(*ONE_SAVE, state=None, label="busy", power=measured(4, 8), on=drive)
    energy = ran.energy(READ_PHASE)
    assert energy.source == INTERVAL_POWER
    assert energy.remarks
    assert energy.tail_j is not None
    assert energy.tail_uncertainty_j is not None
    share = (energy.tail_j + energy.tail_uncertainty_j) / (4 * DESTAGING_W)
    assert 0.99 <= share <= 1.5
