"""The figures of model loading: seconds of a load, its bytes, memory, and what was left cached."""

from __future__ import annotations

from functools import partial
from statistics import fmean

from wattload.core.units import NS_PER_S, Unit
from wattload.results.facts import divided, drive_read_bytes, sum_if_known
from wattload.results.figures import Figure, FigureSource
from wattload.results.model_load.facts import LOAD, LoadFacts, Run, Temperature

LOAD_TIME = "load_s"
figure = partial(Figure[LoadFacts], phase=LOAD)
lower, higher = partial(figure, better="lower"), partial(figure, better="higher")


def load_s(run: Run, end: str = "end_ns") -> float:
    """Return the mean over loads from the first rank's start to ``end`` on the last rank."""
    return fmean(
        max(getattr(rank, end) for rank in load.ranks) - min(rank.start_ns for rank in load.ranks)
        for load in run.facts.loads
    ) / NS_PER_S  # fmt: skip


first_layer_s = partial(load_s, end="first_layer_ns")


def needed_bytes(run: Run) -> int:
    """Return the bytes that all ranks need in a load; what two ranks need counts twice."""
    return sum(run.facts.needed_bytes)


def read_bytes(run: Run) -> float | None:
    """Return the bytes that drives read in a load."""
    return divided(drive_read_bytes(run, LOAD), len(run.facts.loads))


def delivered_bytes(run: Run) -> float:
    return fmean(sum(rank.delivered_bytes for rank in load.ranks) for load in run.facts.loads)


def drive_rate(run: Run) -> float | None:
    """Return the bytes that drives read a second; ``None`` for loads from the page cache."""
    is_cold = run.facts.settings.temperature is Temperature.cold
    return divided(read_bytes(run), load_s(run)) if is_cold else None


def ceiling_share(run: Run) -> float | None:
    return divided(drive_rate(run), run.facts.drive_ceiling_bytes_per_s)


def copy_share(run: Run) -> float | None:
    """Return a rank's rate to its GPU over that of copies from pinned memory."""
    rate = delivered_bytes(run) / len(run.facts.needed_bytes) / load_s(run)
    return divided(rate, run.facts.copy_ceiling_bytes_per_s)


def cpu_s(run: Run) -> float:
    """Return the CPU time of all processes in all loads."""
    return sum(window.cpu_s for window in run.windows(LOAD))


def cpu_per_byte(run: Run) -> float | None:
    return divided(cpu_s(run), delivered_bytes(run) * len(run.facts.loads))


def peak_memory_bytes(run: Run) -> float | None:
    """Return the most memory of all ranks together, in any load."""
    sums = [sum_if_known(rank.peak_memory_bytes for rank in load.ranks) for load in run.facts.loads]
    return None if None in sums else max(filter(None, sums), default=None)


def resident_share(run: Run) -> float | None:
    """Return the share of the files in the page cache after a load, the mean of loads."""
    resident = sum_if_known(load.resident_after_bytes for load in run.facts.loads)
    return divided(resident, len(run.facts.loads) * run.facts.model.file_bytes)


FIGURES: tuple[FigureSource[LoadFacts], ...] = (
    lower(name=LOAD_TIME, label="time of a load", of=load_s, unit=Unit.SECONDS, headline=True,
          meaning="first open to last tensor at its destination, over all ranks; mean of loads"),
    lower(name="first_layer_s", label="time to the first layer", of=first_layer_s,
          unit=Unit.SECONDS, meaning="the same, to the embedding and all of layer 0"),
    higher(name="drive_bytes_per_s", label="rate of bytes read from the drive", of=drive_rate,
           unit=Unit.BYTES_PER_SECOND, reason="no block counters, or loaded from the page cache",
           meaning="bytes that block devices read / time of the loads"),
    higher(name="delivered_bytes_per_s", label="rate of delivered bytes",
           of=lambda run: delivered_bytes(run) / load_s(run), unit=Unit.BYTES_PER_SECOND,
           meaning="bytes that arrived at their destination / time of the loads"),
    lower(name="read_amplification", label="read ÷ needed bytes", unit=Unit.COUNT,
          of=lambda run: divided(read_bytes(run), needed_bytes(run)), reason="no block counters",
          meaning="bytes that block devices read / bytes that the ranks need"),
    higher(name="drive_ceiling_fraction", label="share of the drive's ceiling", of=ceiling_share,
           unit=Unit.FRACTION, reason="not measured, or loaded from the page cache",
           meaning="rate of read bytes / sequential reads of the files by the engine"),
    lower(name="peak_memory_bytes", label="most memory of the ranks", of=peak_memory_bytes,
          unit=Unit.BYTES, reason="not read",
          meaning="resident memory without pages of files, all ranks, in any load"),
    lower(name="peak_memory_ratio", label="most memory ÷ needed bytes", unit=Unit.COUNT,
          of=lambda run: divided(peak_memory_bytes(run), needed_bytes(run)), reason="not read",
          meaning="most memory of the ranks / bytes that they need"),
    figure(name="resident_fraction", label="files in the page cache after a load", better="neither",
           of=resident_share, unit=Unit.FRACTION, reason="residency could not be read",
           meaning="bytes of the files in the page cache / all their bytes, mean of loads"),
)  # fmt: skip
