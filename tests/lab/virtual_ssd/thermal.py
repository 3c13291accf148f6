"""Heat: a case that warms with what is drawn, and the two thresholds that slow the drive down."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tests.lab.virtual_ssd.design import Design

NONE, LIGHT, HEAVY = 0, 1, 2


@dataclass
class Thermal:
    """Temperature and throttling; a threshold of 0 K is switched off.

    The host's thresholds are TMT1 and TMT2 of feature 10h; at the warning temperature the drive
    throttles heavily whatever the host has set. Entries and seconds are counted by level.
    """

    design: Design
    temperature_k: float = field(init=False)
    highest_k: float = field(init=False)
    light_k: int = 0
    heavy_k: int = 0
    level: int = NONE
    entries: list[int] = field(default_factory=lambda: [0, 0, 0])
    seconds: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    warning_s: float = 0.0

    def __post_init__(self) -> None:
        idle_k = self.design.kelvin_per_w * self.design.states[0].idle_w
        self.temperature_k = self.highest_k = self.design.ambient_k + idle_k

    @property
    def share(self) -> float:
        """The part of a state's rate that is left."""
        return (1.0, self.design.light_throttle, self.design.heavy_throttle)[self.level]

    def spend(self, watts: float, seconds: float) -> None:
        """Go on for a time at a constant power."""
        target_k = self.design.ambient_k + self.design.kelvin_per_w * watts
        left = math.exp(-seconds / self.design.warming_s)
        self.temperature_k = target_k + (self.temperature_k - target_k) * left
        self.highest_k = max(self.highest_k, self.temperature_k)
        self.seconds[self.level] += seconds
        if self.temperature_k >= self.design.warning_k:
            self.warning_s += seconds

    def judge(self) -> None:
        """Enter or leave a throttled level by the temperature as it is."""
        heavy_k = min(self.heavy_k or self.design.warning_k, self.design.warning_k)
        if self.temperature_k >= heavy_k:
            level = HEAVY
        elif self.light_k and self.temperature_k >= self.light_k:
            level = LIGHT
        else:
            level = NONE
        if level != self.level:
            self.entries[level] += 1
            self.level = level
