"""What the measuring itself cost, beside the run that it measured."""

from __future__ import annotations

from pydantic import Field

from wattload.core.record.base import Observed


class SamplerRecord(Observed):
    """The sampler of one host from its start to its finish.

    ``missed_tick_count`` are the deadlines that passed while it was still at work,
    ``lost_sample_count`` the readings that could not be written. ``cpu_s`` is the time of all its
    threads. Of ``seconds``, ``quiet_s`` were quiet: no drive was asked. What is told per second,
    and of rounds, is of the others: ``cpu_share`` is CPU time by time, so 0.005 is half a per cent
    of a core; ``tick_mean_s`` and ``tick_max_s`` are how long a round of all sources takes.
    Admin commands are those that the sampler sent to drives; each ``_s`` is from sending one to its
    answer.
    """

    host: str
    period_s: float = Field(gt=0)
    seconds: float = Field(ge=0)
    tick_count: int
    missed_tick_count: int
    sample_count: int
    lost_sample_count: int
    cpu_s: float = Field(ge=0)
    cpu_share: float | None
    quiet_s: float = Field(default=0.0, ge=0)
    tick_mean_s: float | None
    tick_max_s: float | None
    admin_command_count: int
    admin_commands_per_s: float | None
    admin_mean_s: float | None
    admin_max_s: float | None
