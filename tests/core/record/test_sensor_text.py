"""A meter in one line."""

from __future__ import annotations

import pytest

from wattload.core.record.energy import SensorRecord
from wattload.core.record.sensor_text import sensor_text

MEAN = SensorRecord(
    basis="calibrated",
    tau_s=0.87,
    tau_uncertainty_s=0.01,
    kappa_s=1.02 / 8 + 0.1**2 / (24 * 1.02),
    kappa_uncertainty_s=0.01,
    settle_s=1.4,
    update_s=0.1,
    noise_w=0.02,
)


def test_mean_delay_has_its_uncertainty() -> None:
    assert sensor_text(MEAN, 720.0) == (
        "1.02 s mean, updated every 0.1 s, 0.87 ± 0.01 s late, calibrated 12 min before"
    )


@pytest.mark.parametrize(
    ("age_s", "text"),
    [
        (None, "calibrated"),
        (70.0, "calibrated 70 s before"),
        (7200.0, "calibrated 2 h before"),
        (3 * 86_400.0, "calibrated 3 days before"),
    ],
)
def test_age_is_in_a_unit_that_suits(age_s: float | None, text: str) -> None:
    assert sensor_text(MEAN, age_s).endswith(f", {text}")


def test_instant_sensor_as_declared_says_why() -> None:
    sensor = MEAN.model_copy(
        update={
            "basis": "declared",
            "reason": "not calibrated: power.idle_s is 10 s",
            "tau_s": 0.0,
            "kappa_s": 0.0,
            "update_s": 0.0,
        }
    )
    assert sensor_text(sensor) == "instant, as declared, not calibrated: power.idle_s is 10 s"


def test_later_fall_is_told() -> None:
    sensor = MEAN.model_copy(update={"fall_later_s": 0.25})
    assert "falls 0.25 s later than it rises" in sensor_text(sensor)
