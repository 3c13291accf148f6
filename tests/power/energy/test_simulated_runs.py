"""Energies of simulated runs are right, and their uncertainties hold the true ones."""

from __future__ import annotations

import math

import pytest

from tests.power.energy.simulated_runs import DOUBTFUL, KINDS, Kind, outcome
from tests.power.energy.table import BIAS_MAX, HELD_MIN, U_LEAST, U_RMS, WITHIN, errors, rows

SEEDS, MANY = 3, 16
FAR, U_MOST = 3, 0.1
"""No error is so many times its U, and no U of these kinds a greater share of the energy."""
ERRORS = 3.0
"""Limits are moved by so many standard errors of what few seeds show."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", [kind.name for kind in KINDS])
def test_energies_are_right_within_their_uncertainty(name: str) -> None:
    """Compare the energy in the window, of the tail and for the work with all limits."""
    for row in rows(name, range(MANY)):
        assert row.share_known == 1, row
        assert abs(row.bias) <= BIAS_MAX + ERRORS * row.rms / math.sqrt(MANY), row
        assert row.held >= HELD_MIN - ERRORS * math.sqrt(HELD_MIN * (1 - HELD_MIN) / MANY), row
        surely = 1 - ERRORS / math.sqrt(2 * MANY)
        assert row.u <= U_RMS * row.rms / surely + U_LEAST, row


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_error_is_far_beyond_a_small_uncertainty(kind: Kind) -> None:
    for seed in range(SEEDS):
        for found in errors(kind, seed).values():
            assert all(abs(error) <= FAR * u + WITHIN and u <= U_MOST for error, u in found), found


@pytest.mark.parametrize("kind", DOUBTFUL, ids=lambda kind: kind.name)
def test_readings_that_hide_energy_are_refused_or_uncertain(kind: Kind) -> None:
    for seed in range(SEEDS):
        for found in errors(kind, seed).values():
            assert all(math.isnan(error) or abs(error) <= u for error, u in found), found


@pytest.mark.parametrize(
    "name", ["1 s mean, sliding, steady", "undeclared mean, bursting", "two clocks, steady"]
)
def test_without_calibration_the_delay_cancels_between_idle_times(name: str) -> None:
    (kind,) = [each for each in KINDS if each.name == name]
    for seed in range(SEEDS):
        found = outcome(kind, seed, is_calibrated=False)
        assert found.sensor is not None
        assert found.sensor.basis == "declared"
        assert found.sensor.tau_uncertainty_s >= found.sensor.tau_s
        for row in errors(kind, seed, is_calibrated=False)["work"]:
            assert abs(row[0]) <= max(BIAS_MAX, row[1])


@pytest.mark.parametrize(
    "name",
    [
        "1 s mean, sliding, steady",
        "1 s mean on a 1 s clock, steady",
        "1 s mean on a 1 s clock, bursting",
    ],
)
def test_without_a_rest_the_uncertainty_covers_both_assignments(name: str) -> None:
    (kind,) = [each for each in KINDS if each.name == name]
    for seed in range(SEEDS):
        found = outcome(kind, seed, has_rest=False)
        record = found.records[-1]
        assert record.energy_j is not None
        assert record.uncertainty_j is not None
        assert found.sensor is not None
        assert abs(record.energy_j - found.true_j[record.phase]) <= record.uncertainty_j
        # Power differs by at most 20 W on both sides of an edge, for the time that it settles.
        assert record.uncertainty_j <= 2 * 20 * found.sensor.settle_s
        assert record.missing["tail_j"] == "no rest followed it"
