"""The checks of model loading: what the drive read, what arrived, and when."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.core.checks.verdicts import judged, unknown
from wattload.core.record.results import Check
from wattload.core.units import NS_PER_S, compared_bytes
from wattload.results import checks
from wattload.results.facts import drive_read_bytes
from wattload.results.model_load.facts import LOAD, LoadFacts, Run, Temperature

LEAST_READ = 0.98
"""Share of the needed bytes that are read, and held if mapped, at least; less was never loaded."""
AROUND, AROUND_S = 0.05, 0.1
"""Time of a span that may be outside of its load: a share of the load, and seconds."""


def _is_cold(run: Run) -> bool:
    return run.facts.settings.temperature is Temperature.cold


def _loaded(run: Run) -> Iterator[Check]:
    """Check the drives' bytes against headers. Fault: a library mapped a file and read nothing."""
    if not _is_cold(run):
        return
    loads = len(run.facts.loads)
    read_bytes, needed_bytes = drive_read_bytes(run, LOAD), loads * run.facts.drive_bytes
    if read_bytes is None:
        text = "No block device under the target counts bytes: what was read is unknown."
        yield unknown("loaded", text, mandatory=True)
        return
    read, needed = compared_bytes(read_bytes, needed_bytes)
    yield judged(
        "loaded",
        f"The drives read {read} in {loads} loads, whose tensors need {needed}",
        ": the rest was not read, or was in memory before",
        holds=read_bytes >= LEAST_READ * needed_bytes,
        figures={"read_bytes": read_bytes, "needed_bytes": needed_bytes},
        worst="fail",
        mandatory=True,
    )


def _held(run: Run) -> Iterator[Check]:
    """Check that the page cache holds what is mapped. Fault: its first pages made room for others.

    Of a mapped file what was touched is in no other memory; a GPU has its own.
    """
    resident = [load.resident_bytes for load in run.facts.loads if load.resident_bytes is not None]
    if run.facts.bypasses_cache or run.facts.device or not resident:
        return
    held, distinct = compared_bytes(min(resident), run.facts.distinct_bytes)
    yield judged(
        "held",
        f"The page cache held {held} after a load, whose tensors are {distinct}",
        ": memory is too small for the model",
        holds=min(resident) >= LEAST_READ * run.facts.distinct_bytes,
        figures={"resident_bytes": min(resident), "distinct_bytes": run.facts.distinct_bytes},
        worst="fail",
    )


def _delivered_tensors(run: Run) -> Iterator[Check]:
    """Check what arrived against headers and content. Fault: a part is missing, twice or wrong."""
    needed_bytes = run.facts.needed_bytes * len(run.facts.loads)
    ranks = [rank for load in run.facts.loads for rank in load.ranks]
    delivered_bytes = [rank.delivered_bytes for rank in ranks]
    compared = sum(rank.compared_bytes for rank in ranks)
    wrong = [rank for rank in ranks if rank.wrong_bytes]
    yield judged(
        "delivered_tensors",
        f"Of {sum(needed_bytes):,} bytes by the headers {sum(delivered_bytes):,} were delivered, "
        f"and {compared:,} compared at their destination",
        f": {sum(rank.wrong_bytes for rank in wrong):,} are wrong, first in {wrong[0].first_wrong}"
        if wrong
        else ": parts were left out, or came twice",
        holds=delivered_bytes == list(needed_bytes) and compared == sum(needed_bytes) and not wrong,
        figures={
            "delivered_bytes": sum(delivered_bytes),
            "compared_bytes": compared,
            "needed_bytes": sum(needed_bytes),
        },
        worst="fail",
        mandatory=True,
    )


def _load_times(run: Run) -> Iterator[Check]:
    """Check the sum of all loads' times against that of the spans, of which energy is.

    Faults: loads took longer than their spans; or spans hold much else.
    """
    spans = [each for each in run.record.spans if each.name == LOAD and not each.is_part]
    ranks = [rank for load in run.facts.loads for rank in load.ranks]
    span_s = sum(span.end_ns - span.start_ns for span in spans) / NS_PER_S
    load_s = sum(rank.end_ns - rank.start_ns for rank in ranks) / NS_PER_S
    holds = len(ranks) == len(spans) and load_s <= span_s
    yield judged(
        "load_times",
        f"{len(ranks)} loads took {load_s:,.3f} of the {span_s:,.3f} s of {len(spans)} spans",
        ": the energy of the phase is not that of the loads",
        holds=holds and span_s <= (1 + AROUND) * load_s + AROUND_S * len(spans),
        figures={"loads": len(ranks), "spans": len(spans), "span_s": span_s, "load_s": load_s},
        worst="warn" if holds else "fail",
    )


CHECKS: tuple[checks.CheckSource[LoadFacts], ...] = (
    _loaded, _held, _delivered_tensors, _load_times,
)  # fmt: skip
OBSERVED: tuple[checks.Observed[LoadFacts], ...] = (checks.cold_cache(_is_cold),)
