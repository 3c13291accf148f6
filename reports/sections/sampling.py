"""What the measuring itself cost: the sampler's share of a core, what it asked of the drives."""

from __future__ import annotations

from wattload.core.record.run import RunRecord
from wattload.core.record.sampler import SamplerRecord
from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Table, columns, row
from wattload.reports.quantity import MISSING, number, percent, quantity, whole


def sampling_table(record: RunRecord) -> Table:
    """Return one row for each host's sampler."""
    titles = columns(
        "host",
        "#every",
        "#rounds",
        "#missed",
        "#readings",
        "#lost",
        "#share of a core",
        "#longest round",
        "#admin commands",
        "#mean latency",
        "#longest",
    )
    rows = [_row(sampler) for sampler in record.power.samplers]
    return Table(columns=titles, rows=rows, caption="What sampling cost")


def _row(sampler: SamplerRecord) -> tuple[Cell, ...]:
    rate = number(sampler.admin_commands_per_s, 3)
    return row(
        sampler.host,
        quantity(sampler.period_s, Unit.SECONDS, 3),
        whole(sampler.tick_count),
        _counted(sampler.missed_tick_count),
        whole(sampler.sample_count),
        _counted(sampler.lost_sample_count),
        percent(sampler.cpu_share),
        _seconds(sampler.tick_max_s),
        f"{rate}/s",
        _seconds(sampler.admin_mean_s),
        _seconds(sampler.admin_max_s),
    )


def _counted(count: int) -> Cell:
    return Cell(whole(count), "warn" if count else "")


def _seconds(seconds: float | None) -> str:
    return MISSING if seconds is None else quantity(seconds, Unit.SECONDS, 3)
