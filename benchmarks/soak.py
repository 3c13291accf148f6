"""Does the sampler lose a reading in an hour? ``python -m benchmarks.soak --seconds 3600``.

A trace of known joules is replayed at 100 Hz through a real sampler process; afterwards every
reading that fell due must be in its file, once, at its time, and the energy must be the trace's.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from wattload.core.power import Channel, Instant
from wattload.core.record.energy import SamplerRecord
from wattload.core.units import NS_PER_S
from wattload.power.config import PowerConfig, ReplayConfig
from wattload.power.energy.integration import integrate
from wattload.power.energy.trace import Trace, TraceKey, traces
from wattload.power.sampler.client import SamplerClient
from wattload.power.sampler.samples import read_samples
from wattload.power.sources.replay_trace import stage

RATE_HZ = 100
DEVICE = "drive0"
MARGIN_S = 60
"""What the trace has beyond the soak, so that its end is not what is measured."""
TELL_EVERY_S = 60.0
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a soak; ``lost_count`` of the readings due were not in the samples file."""

    seconds: float
    due_count: int
    found_count: int
    lost_count: int
    energy_error: float
    cost: SamplerRecord

    @property
    def is_good(self) -> bool:
        return (
            not self.lost_count and not self.cost.lost_sample_count and self.energy_error < ROUNDING
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print what came of it as JSON; returns 1 where a reading was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (default 3600)")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        outcome = soak(Path(folder), asked.seconds)
    told = {**asdict(outcome), "cost": outcome.cost.model_dump(mode="json")}
    print(json.dumps(told, indent=1))
    return 0 if outcome.is_good else 1


def soak(folder: Path, seconds: float) -> Outcome:
    """Replay for so long through a sampler of its own and compare."""
    count = round((seconds + MARGIN_S) * RATE_HZ)
    run = folder / "runs" / "soak"
    run.mkdir(parents=True)
    path = folder / "known.csv"
    path.write_text(_text(count))
    config = stage(
        PowerConfig(source="replay", period_s=1 / RATE_HZ, replay=ReplayConfig(path=str(path))), run
    )
    with SamplerClient.spawn(run.parent) as client:
        client.hello(run.name)
        client.open(config, devices=[DEVICE], block_devices=[])
        client.start()
        _wait(seconds)
        finished = client.finish()
    if finished.cost is None or finished.samples_file is None:
        raise RuntimeError("the sampler has not sampled")
    by_key = traces(read_samples(run / finished.samples_file))
    trace = by_key[TraceKey("replay", DEVICE, Channel.POWER_W)]
    return _compared(trace, finished.cost)


def power_w(row: int) -> float:
    """Return the watts of a reading: each is another, so that a lost one can't hide."""
    return 5.0 + 10.0 * (row % 7919) / 7919


def _text(count: int) -> str:
    rows = "".join(f"{row / RATE_HZ!r},{power_w(row)!r}\n" for row in range(count))
    return f"# evidence: declared\n# note: made for a soak\ntime_s,power_w\n{rows}"


def _wait(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        print(f"{left_s:.0f} s left", file=sys.stderr, flush=True)
        time.sleep(min(left_s, TELL_EVERY_S))


def _compared(trace: Trace, cost: SamplerRecord) -> Outcome:
    """Return what the trace lacks: rows are identified by their times, those of the schedule."""
    first_ns, last_ns = int(trace.time_ns[0]), int(trace.time_ns[-1])
    step_ns = NS_PER_S // RATE_HZ
    due_count = (last_ns - first_ns) // step_ns + 1
    found = {
        (time_ns - first_ns) // step_ns
        for time_ns, watts in zip(trace.time_ns.tolist(), trace.value.tolist(), strict=True)
        if watts == power_w((time_ns - first_ns) // step_ns)
    }
    halves = (power_w(0) + power_w(due_count - 1)) / 2
    true_j = (math.fsum(map(power_w, range(due_count))) - halves) / RATE_HZ
    measured = integrate(trace, Instant(), first_ns, last_ns, period_s=1 / RATE_HZ)
    error = abs((measured.energy_j or 0.0) / true_j - 1) if true_j else 1.0
    return Outcome(
        seconds=cost.seconds,
        due_count=due_count,
        found_count=trace.time_ns.size,
        lost_count=due_count - len(found),
        energy_error=error,
        cost=cost,
    )


if __name__ == "__main__":
    sys.exit(main())
