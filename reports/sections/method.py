"""How the figures are made: the rules that a reader needs to judge them."""

from __future__ import annotations

from collections.abc import Iterator

from wattload.reports.blocks import Facts, Section
from wattload.reports.charts.marks import MARKS
from wattload.reports.energy import SOFT_BOUND, WORDS
from wattload.reports.subject import Subject


def _evidence() -> Iterator[str]:
    for name, words in WORDS.items():
        yield f"{name.replace('_', ' ')}: {words}"


def method_section(subject: Subject) -> Section | None:
    """Return what each kind of number means and where it comes from."""
    pairs = [
        ("bytes", "Counted where they move; nominal sizes never enter a rate. GB is 10⁹ bytes."),
        ("rate", "All bytes ÷ all time of the phase, never a mean of rates."),
        ("time", "CLOCK_MONOTONIC of each host; a phase lasts from first start to last end."),
        (
            "energy",
            "Power integrated over exactly the phase, ends interpolated. Gross leads; net is gross "
            "minus idle power times seconds.",
        ),
        ("MB/s per W", "Bytes ÷ energy over the same window, which is the rate ÷ mean power."),
        (
            "marks",
            f"Of more than {MARKS} runs in an arm a chart draws {MARKS}, evenly by rank, lowest "
            "and highest among them; the table under it lists every run.",
        ),
        ("missing", "A dash is a figure that nobody has, never a zero; its reason stands by."),
        ("evidence", f"{'; '.join(_evidence())}."),
        (
            "bounds, ≤",
            "From the drive's power state table or from declared watts: an interval, or a maximum "
            f"alone. {SOFT_BOUND}. Declared watts may be wrong altogether. They rank nothing, and "
            "neither does a declared figure, a simulated one, or one that is replayed from another "
            "run.",
        ),
        (
            "checks",
            "Each compares two counters that were kept apart. A run with a failed check is kept "
            "and shown, and never compared as valid; with --force it is, and the page says so.",
        ),
        (
            "closure",
            "Before this page was drawn, every record's figures were derived anew from each other "
            "and from the traces: parts and totals, bytes ÷ time, watts times seconds, digests.",
        ),
    ]
    return Section(
        anchor="method", title="How the figures are made", blocks=[Facts(pairs, "prose")]
    )
