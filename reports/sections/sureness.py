"""How sure a comparison is: counts, method, p values, spread, and one setting against itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.reports.blocks import (
    Block,
    Cell,
    Fold,
    Notice,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    row,
)
from wattload.reports.compare import Row, noise_floors, unused_sessions
from wattload.reports.intervals import sign_flip_p_value
from wattload.reports.noise import Noise, Session
from wattload.reports.quantity import MISSING, counted, number, percent
from wattload.reports.statistics import FLOOR, Effect, Gate, Spread
from wattload.reports.subject import Subject

_GATES: dict[Gate, tuple[str, Tone]] = {
    "steady": ("steady", "good"),
    "noted": ("noted", "quiet"),
    "noisy": ("noisy, run more", "warn"),
    "unstable": ("unstable", "bad"),
}

_ALLOWANCE = (
    " Of energy, p before and after Holm is of no more apart than the instruments may be off by; p "
    "by sign flips allows for nothing, and is of no difference at all."
)


def sureness(rows: Sequence[Row]) -> Fold | None:
    """Return, for each figure with a ratio, what its call stands on; ``None`` without one."""
    known = [entry for entry in rows if entry.effect is not None]
    if not known:
        return None
    is_widened = any(entry.effect.accuracy for entry in known if entry.effect)
    swept = [known[0].axis] if known[0].axis else []
    titles = ("figure", *swept, "compared", "#floor", "#p", "#p, Holm", "#p, sign flips")
    table = Table(
        columns=columns(*titles, "spread of A", "spread of B"),
        rows=[_cells(entry, entry.effect) for entry in known if entry.effect],
        caption="What each call stands on",
        note=(
            "p is of the t test that the interval belongs to; after Holm it allows for all calls "
            "of the workload. The words in the table above go by intervals and floor alone."
            + (_ALLOWANCE if is_widened else "")
        ),
    )
    return Fold("How sure: method, noise floor, p values, spread", [table])


def _cells(entry: Row, effect: Effect) -> tuple[Cell, ...]:
    flips = sign_flip_p_value(effect.estimate) if effect.estimate else None
    return row(
        entry.quantity.label,
        *([entry.at] if entry.axis else []),
        method(effect),
        Cell(percent(effect.floor, 2), remark=effect.floor_of),
        _p(effect.p_value),
        _p(effect.demand.p_value if effect.demand else None),
        _p(flips),
        *(_gate(spread) for spread in entry.spreads.values()),
    )


def method(effect: Effect) -> str:
    """Return how the interval of an effect came about, and of how many runs."""
    runs = f"{effect.count_a} and {counted(effect.count_b, 'run')}"
    if not effect.enough:
        return f"{runs}: no interval"
    if effect.pairs:
        how = counted(effect.pairs, "pair")
        left = effect.count_a + effect.count_b - 2 * effect.pairs
        rest = f", {counted(left, 'run')} without a partner left out" if left > 0 else ""
    else:
        how, rest = runs, ""
        if effect.parted:
            how_far = "too far apart in time" if effect.parted > effect.undated else "without times"
            rest = f", {counted(effect.parted, 'pair')} {how_far}"
    kind = "t on pairs" if effect.pairs else "Welch's t"
    return f"{how}, {kind}{' and BCa bootstrap' if effect.bootstrap else ''}{rest}"


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.0001" if value < 1e-4 else number(value, 2)  # noqa: PLR2004 - no digits help there


def _gate(spread: Spread | None) -> Cell:
    if spread is None or spread.gate is None:
        return Cell(MISSING)
    words, tone = _GATES[spread.gate]
    return Cell("", tone, words, f"CV {percent(spread.cv, 2)}")


def noise_section(subject: Subject) -> Section | None:
    """Return what one setting showed against itself, in sessions that looked; ``None`` for none."""
    found, unused = noise_floors(subject), unused_sessions(subject)
    if not found and not unused:
        return None
    return Section(
        anchor="noise",
        title="One setting against itself",
        blocks=[*_unused(unused), *(_noise(found) if found else ())],
    )


def _unused(unused: Sequence[tuple[Session, str]]) -> Iterator[Notice]:
    """Yield the sessions that set no floor on this page, with the reasons."""
    told = [
        f"{session.workload}, session {session.session_id}: {reason}." for session, reason in unused
    ]
    if told:
        yield Notice("Sessions of one setting against itself that set no floor here", told, "open")


def _noise(found: Sequence[Noise]) -> Iterator[Block]:
    yield Paragraph(
        "One setting took turns with itself: whatever its two halves differ by is noise of the "
        "host, the drive and the method. No effect below it is called where an arm has the same "
        "settings, drive, power state and host; of other runs it says nothing."
    )
    apart = [each for each in found if each.effect.excludes_one and each.share > FLOOR]
    if apart:
        yield Notice(
            "One setting differs from itself",
            [
                f"{each.workload}, {each.quantity.label}: the halves are up to "
                f"{percent(each.share, 2)} apart and their interval excludes 1, so the order of "
                "runs has an effect here."
                for each in apart
            ],
            "warn",
        )
    told = [each for each in found if each.quantity.headline]
    others = [each for each in found if not each.quantity.headline]
    yield _noise_table(told, "Noise floor of headline figures and energy")
    if others:
        yield Fold("All other figures", [_noise_table(others, "Noise floor of other figures")])


def _noise_table(found: Sequence[Noise], caption: str) -> Table:
    rows = [
        row(
            each.workload,
            each.quantity.label,
            each.session_id,
            str(each.effect.pairs),
            number(each.effect.ratio, 4),
            f"{number(each.effect.lower, 4)} to {number(each.effect.upper, 4)}",
            percent(each.share, 2),
        )
        for each in found
    ]
    titles = ("workload", "figure", "session", "#pairs", "#second/first", "#95 % interval")
    return Table(
        columns=columns(*titles, "#noise floor"),
        rows=rows,
        caption=caption,
        note=(
            "Ratio of geometric means of the halves, in pairs. The floor is how far the interval "
            f"reaches from 1, and {percent(FLOOR, 1)} at least."
        ),
    )
