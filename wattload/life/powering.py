"""Power in the life of a run: open, idle baseline, tail, and the account at the end."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from wattload.core.errors import PowerError
from wattload.core.power import Channel, Sample, SourceFacts
from wattload.core.record.energy import PowerSection
from wattload.core.record.phase import PhaseWindow
from wattload.life.phases import BIN_NS, PhaseRecorder, TrafficRow
from wattload.life.sampling import Sampling
from wattload.power.config import IDLE_DEFAULT_S, PowerConfig
from wattload.power.sampler.reports import ControllerReading, FinishReport, OpenReport
from wattload.power.samples import read_samples

if TYPE_CHECKING:
    from wattload.life.assemble import RankReport

IDLE_PHASE, TAIL_PHASE = "idle", "tail"
TAIL_LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerReport:
    """What a host's leader hands in: the sampler's answers, or why there are none."""

    host: str
    opened: OpenReport
    finished: FinishReport | None
    lost: str | None
    idle_s: float
    tail_s: float | None
