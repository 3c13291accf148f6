"""Loads on a virtual drive over virtual time, sampled as the suite samples, with the truth kept."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.lab.virtual_ssd.meters import Updates
from tests.lab_unit.virtual import NS, Bench, VirtualAdmin
from wattload.core.power import Channel, Evidence, Sample
from wattload.power.nvme.features import POWER_MANAGEMENT, read_power_state, set_command
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import read_smart

SOURCE = "nvme"
DEVICE = "VIRTUAL0001"
STEP_S = 0.01
QUEUE_DEPTH = 4
OPERATION_BYTES = 1 << 18
LEAD_S, REST_S, SETTLE_S = 3.0, 5.0, 3.0

Load = Callable[[float], str]
"""What is done at a time in seconds from the window's start: read, write or idle."""


def checkpoint(time_s: float) -> str:
    """Writes for 2.3 s every 7 s, as checkpoints between steps of training."""
    return "write" if time_s % 7 < 2.3 else "idle"


def checkpoint_whole(time_s: float) -> str:
    """Writes without a pause."""
    return "write" if time_s >= 0 else "idle"


def unet3d(time_s: float) -> str:
    """Reads for 180 ms of every 410 ms, as a loader before an accelerator that waits."""
    return "read" if time_s % 0.41 < 0.18 else "idle"


def unet3d_unpaced(time_s: float) -> str:
    """Reads without a pause."""
    return "read" if time_s >= 0 else "idle"


def mixed(time_s: float) -> str:
    """Reads, with a write of 1.7 s every 11 s."""
    return "write" if time_s % 11 < 1.7 else "read"


LOADS: Mapping[str, Load] = {
    each.__name__: each for each in (checkpoint, checkpoint_whole, unet3d, unet3d_unpaced, mixed)
}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A load's samples and its window, with the drive that knows the truth."""

    samples: list[Sample]
    start_ns: int
    end_ns: int
    bench: Bench

    @property
    def truth_j(self) -> float:
        return self.bench.energy_j(self.start_ns, self.end_ns)

    @property
    def before_ns(self) -> tuple[int, int]:
        """Start and end of the idle time before the load."""
        return self.start_ns - round(LEAD_S * NS), self.start_ns

    @property
    def rest_ns(self) -> tuple[int, int]:
        """Start and end of the rest, in which the drive empties its cache."""
        return self.end_ns, self.end_ns + round(REST_S * NS)

    @property
    def after_ns(self) -> tuple[int, int]:
        """Start and end of the idle time behind the rest."""
        return self.rest_ns[1], self.rest_ns[1] + round(LEAD_S * NS)

    @property
    def true_tail_j(self) -> float:
        """The true energy of the rest, above that of as much idle time."""
        return self.bench.energy_j(*self.rest_ns) - REST_S / LEAD_S * self.bench.energy_j(
            *self.after_ns
        )


def record(
    load: Load, seconds: float, updates: Updates, *, state: int = 0, period_s: float = 0.1
) -> Recorded:
    """Run a load in a power state, polled with jitter also in idle times around it."""
    bench = Bench(updates=updates)
    admin = VirtualAdmin(bench)
    dice = random.Random(4)
    admin.submit(set_command(POWER_MANAGEMENT, "state", value=state))
    bench.wait(0.1)
    bounds = {each.index: each for each in identify_controller(admin).power_states}
    begun_ns = bench.now_ns
    start_ns = begun_ns + round(LEAD_S * NS)
    end_ns = last_ns = start_ns + round(seconds * NS)
    samples: list[Sample] = []
    due_ns = begun_ns
    while bench.now_ns < end_ns + (REST_S + LEAD_S + SETTLE_S) * NS:
        works = start_ns <= bench.now_ns < last_ns
        _feed(bench, load((bench.now_ns - start_ns) / NS) if works else "idle")
        bench.wait(STEP_S)
        end_ns = max([last_ns, *bench.finished_ns[-1:]])  # the job ends with its last operation
        if bench.now_ns >= due_ns:
            now_state = read_power_state(admin)
            watts = read_smart(admin).interval_power_w
            described = bounds[now_state]
            samples += [
                _sample(bench, Channel.POWER_W, watts, Evidence.SELF_REPORTED),
                _sample(bench, Channel.POWER_STATE, now_state, Evidence.BOUNDS),
                _sample(bench, Channel.LOWER_W, described.idle_w, Evidence.BOUNDS),
                _sample(bench, Channel.UPPER_W, described.max_w, Evidence.BOUNDS),
            ]
            due_ns += round((period_s + dice.uniform(-0.02, 0.02)) * NS)
    return Recorded(samples=samples, start_ns=start_ns, end_ns=end_ns, bench=bench)


def _feed(bench: Bench, action: str) -> None:
    """Keep the queue as deep as a closed loop would."""
    while action != "idle" and bench.outstanding < QUEUE_DEPTH:
        bench.give(is_write=action == "write", size_bytes=OPERATION_BYTES)


def _sample(bench: Bench, channel: Channel, value: float | None, evidence: Evidence) -> Sample:
    name = SOURCE if evidence is Evidence.SELF_REPORTED else "bounds"
    return Sample(
        time_ns=bench.now_ns,
        spread_ns=1_000_000,
        source=name,
        device=DEVICE,
        channel=channel,
        value=value,
        evidence=evidence,
    )
