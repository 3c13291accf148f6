"""The sampler's own cost in one run: its rounds, its CPU time, its admin commands."""

from __future__ import annotations

import time

from wattload.core.record.sampler import SamplerRecord
from wattload.core.units import NS_PER_S
from wattload.power.nvme.cost import ADMIN_COST
from wattload.power.sampler.schedule import Schedule
from wattload.power.samples import SampleFile


class CostMeter:
    """Counts from its making on; what is told per second leaves out the quiet."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        ADMIN_COST.reset()
        self._start_ns = time.monotonic_ns()
        self._cpu_start_s = time.process_time()
        self._quiet_since = (self._start_ns, self._cpu_start_s) if is_quiet else None
        self._quiet_ns = 0
        self._quiet_cpu_s = 0.0
        self._tick_count = 0
        self._tick_total_ns = 0
        self._tick_max_ns = 0

    def quiet(self, *, is_on: bool) -> None:
        """Begin or end a time in which drives are left alone, which would dilute what they cost."""
        now = time.monotonic_ns(), time.process_time()
        if self._quiet_since is not None:
            self._quiet_ns += now[0] - self._quiet_since[0]
            self._quiet_cpu_s += now[1] - self._quiet_since[1]
        self._quiet_since = now if is_on else None

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far."""
        return time.process_time() - self._cpu_start_s

    def add_tick(self, start_ns: int, end_ns: int) -> None:
        """Count a round over all sources; a round in the quiet leaves most of them out."""
        if self._quiet_since is not None:
            return
        self._tick_count += 1
        self._tick_total_ns += end_ns - start_ns
        self._tick_max_ns = max(self._tick_max_ns, end_ns - start_ns)

    def record(
        self, *, host: str, period_s: float, schedule: Schedule, file: SampleFile
    ) -> SamplerRecord:
        """Return what it has come to."""
        self.quiet(is_on=self._quiet_since is not None)  # counts the quiet up to now
        seconds = (time.monotonic_ns() - self._start_ns) / NS_PER_S
        quiet_s = self._quiet_ns / NS_PER_S
        polled_s = seconds - quiet_s
        ticks, commands, cpu_s = self._tick_count, ADMIN_COST.count, self.cpu_s()
        figures = {
            "cpu_share": (cpu_s - self._quiet_cpu_s) / polled_s if polled_s else None,
            "tick_mean_s": self._tick_total_ns / NS_PER_S / ticks if ticks else None,
            "tick_max_s": self._tick_max_ns / NS_PER_S if ticks else None,
            "admin_commands_per_s": commands / polled_s if polled_s else None,
            "admin_mean_s": ADMIN_COST.total_ns / NS_PER_S / commands if commands else None,
            "admin_max_s": ADMIN_COST.max_ns / NS_PER_S if commands else None,
        }
        return SamplerRecord(
            host=host,
            period_s=period_s,
            seconds=seconds,
            quiet_s=quiet_s,
            tick_count=schedule.tick_count,
            missed_tick_count=schedule.missed_count,
            sample_count=file.sample_count,
            lost_sample_count=file.lost_count,
            cpu_s=cpu_s,
            admin_command_count=commands,
            missing={name: _why(name) for name, value in figures.items() if value is None},
            **figures,
        )


def _why(name: str) -> str:
    if name.startswith("admin_m"):
        return "no admin command was sent"
    return "nothing was sampled"
