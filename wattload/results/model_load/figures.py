"""The figures of model loading: seconds of a load, its bytes, memory, and what was left cached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from wattload.core.record.results import Better
from wattload.core.units import MB, NS_PER_S, Unit
from wattload.results.facts import divided, drive_read_bytes, sum_if_known
from wattload.results.figures import Figure, FigureSource
from wattload.results.model_load.facts import LOAD, LoadFacts, Run, Temperature

LOAD_TIME = "load_s"


def load_s(run: Run, end: str = "end_ns") -> float:
    """Return the time from the first rank's start to ``end`` on the last rank, mean of loads."""
    return fmean(
        max(getattr(rank, end) for rank in load.ranks) - min(rank.start_ns for rank in load.ranks)
        for load in run.facts.loads
    ) / NS_PER_S  # fmt: skip


def first_layer_s(run: Run) -> float | None:
    """Return the same to the first layer; ``None`` if no tensor's name is of it."""
    is_known = all(rank.first_layer_ns for load in run.facts.loads for rank in load.ranks)
    return load_s(run, "first_layer_ns") if is_known else None


def needed_bytes(run: Run) -> int:
    return sum(run.facts.needed_bytes)


def read_bytes(run: Run) -> float | None:
    return divided(drive_read_bytes(run, LOAD), len(run.facts.loads))


def delivered_bytes(run: Run) -> float:
    return fmean(sum(rank.delivered_bytes for rank in load.ranks) for load in run.facts.loads)


MOST_READ = 1.05
"""Share of the files that drives read in a load at most."""


def drive_rate(run: Run) -> float | None:
    """Return the bytes that drives read a second.

    ``None`` for loads from the page cache, and if drives read more than loads do: others read too.
    """
    facts, read = run.facts, read_bytes(run)
    most = facts.model.file_bytes * (len(facts.needed_bytes) if facts.bypasses_cache else 1)
    is_own = facts.settings.temperature is Temperature.cold and (read or 0) <= MOST_READ * most
    return divided(read, load_s(run)) if is_own else None


LEAST_BYTES, LEAST_S = 256_000_000, 0.2
"""A load of less is not judged by a ceiling: opening files and starting threads count more."""


def is_small(run: Run) -> bool:
    return max(needed_bytes(run), read_bytes(run) or 0) < LEAST_BYTES or load_s(run) < LEAST_S


def ceiling_share(run: Run) -> float | None:
    return None if is_small(run) else divided(drive_rate(run), run.facts.drive_ceiling_bytes_per_s)


def copy_share(run: Run) -> float | None:
    """Return a rank's rate to its GPU over that of copies from pinned memory."""
    rate = delivered_bytes(run) / len(run.facts.needed_bytes) / load_s(run)
    return divided(rate, run.facts.copy_ceiling_bytes_per_s)


def cpu_s(run: Run) -> float:
    """Return the CPU time of all loads."""
    return sum(window.cpu_s for window in run.windows(LOAD))


def cpu_per_byte(run: Run) -> float | None:
    delivered = delivered_bytes(run) * len(run.facts.loads)
    return cpu_s(run) / delivered if delivered >= MB else None


def peak_memory_bytes(run: Run) -> float | None:
    """Return the most memory that a load took, of all ranks together."""
    sums = [sum_if_known(rank.peak_memory_bytes for rank in load.ranks) for load in run.facts.loads]
    return None if None in sums else max(filter(None, sums), default=None)


def resident_share(run: Run) -> float | None:
    resident = sum_if_known(load.resident_bytes for load in run.facts.loads)
    return divided(resident, len(run.facts.loads) * run.facts.model.file_bytes)


_BYTES, _SHARE = Unit.BYTES, Unit.FRACTION
COLUMNS: Sequence[tuple[str, str, Callable[[Run], float | None], Unit, Better, str]] = (
    (LOAD_TIME, "time of a load", load_s, Unit.SECONDS, "lower",
     "first open to last tensor at its destination, over all ranks; mean of loads"),
    ("first_layer_s", "time to the first layer", first_layer_s, Unit.SECONDS, "lower",
     "the same, to the embedding and all of layer 0"),
    ("load_needed_bytes", "needed", needed_bytes, _BYTES, "neither",
     "parts of tensors that ranks need in a load; what two need counts twice"),
    ("load_read_bytes", "read", read_bytes, _BYTES, "lower", "what block devices read in a load"),
    ("load_delivered_bytes", "delivered", delivered_bytes, _BYTES, "neither",
     "what arrived at its destination in a load"),
    ("load_read_amplification", "read ÷ needed",
     lambda run: divided(read_bytes(run), needed_bytes(run)), Unit.COUNT, "lower",
     "bytes that block devices read / bytes that ranks need"),
    ("drive_bytes_per_s", "rate of reads", drive_rate, Unit.BYTES_PER_SECOND,
     "higher",
     "bytes that block devices read / time of the loads"),
    ("drive_ceiling_fraction", "share of the drive's ceiling", ceiling_share, _SHARE, "higher",
     "rate of reads / the engine's sequential reads of the files"),
    ("copy_ceiling_fraction", "share of the copy's ceiling", copy_share, _SHARE, "higher",
     "delivered bytes of a rank / time / copies from pinned memory to the GPU"),
    ("load_cpu_s_per_byte", "CPU time per delivered GB", cpu_per_byte, Unit.SECONDS_PER_BYTE,
     "lower", "CPU time of all processes / delivered bytes"),
    ("load_peak_memory_bytes", "memory taken", peak_memory_bytes, _BYTES, "neither",
     "most resident memory above that before the load, of all ranks, without pages of files"),
    ("resident_fraction", "cached afterwards", resident_share, _SHARE, "neither",
     "bytes of the files in the page cache after a load / all their bytes; mean of loads"),
)  # fmt: skip


def _figures(run: Run) -> Sequence[Figure[LoadFacts]]:
    reason = "not counted here, from the page cache, too small, or other programs read too"
    return [
        Figure(name=name, of=of, unit=unit, better=better, meaning=meaning, phase=LOAD,
               headline=name == LOAD_TIME, reason=reason)
        for name, _, of, unit, better, meaning in COLUMNS
        if run.facts.device or of is not copy_share
    ]  # fmt: skip


FIGURES: tuple[FigureSource[LoadFacts], ...] = (_figures,)
