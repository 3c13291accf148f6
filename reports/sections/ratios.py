"""Ratios of a comparison: as sentences, in tables, their confidence, and the noise floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

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
    listing,
    row,
)
from wattload.reports.charts.captions import evidence
from wattload.reports.sections.wording import unique
from wattload.reports.stats.comparison import Row, noise_floors, unused_sessions
from wattload.reports.stats.conditions import NO_VALID_RUN
from wattload.reports.stats.effects import FLOOR, Effect, Gate, Spread
from wattload.reports.stats.figures import RunFigure, uncertainty_of
from wattload.reports.stats.intervals import Interval
from wattload.reports.stats.pairs import Noise, Session
from wattload.reports.stats.subject import Group, Subject, lettered, named
from wattload.results.quantity import (
    DIRECTIONS,
    MISSING,
    Scale,
    counted,
    interval_text,
    number,
    percent,
    plus_minus,
    ratio_text,
    scale_for,
    scaled,
)

_CALL_TONES: dict[str, Tone] = {"a": "a", "b": "b"}
_GATE_REMARKS = {"noisy": ": noisy, run more", "unstable": ": unstable"}
_GATE_BADGES: dict[Gate, tuple[str, Tone]] = {
    "steady": ("steady", "good"),
    "noted": ("noted", "quiet"),
    "noisy": ("noisy, run more", "warn"),
    "unstable": ("unstable", "bad"),
}
_END_DIGITS = 4
"""One digit more than a ratio has, to show on which side of 1 an end is."""

_CV = "CV is the sample standard deviation over the mean of an arm's valid runs."
_MEANS = "Figures are geometric means of valid runs, as in the bars; shares have means. "
_RATIO = (
    "The ratio is theirs, in pairs where runs alternated, with the letter of the better arm, or of "
    "the larger figure where neither is better. Of shares it is their difference instead. "
    "The interval of an energy is widened by its stated uncertainty. "
)
_SHARES = " Shares have the difference of their means instead, and its distance from 0, in points."
_ENERGY_P_VALUES = (
    " For energy, p before and after Holm tests for a difference beyond the uncertainty of the "
    "instruments; p by sign flips has no such allowance and tests for any difference."
)


def quantities_table(rows: Sequence[Row], group: Group, caption: str) -> Table:
    return Table(
        columns=columns("quantity", "better", *_titles(group)),
        rows=[
            row(
                Cell(entry.quantity.label, remark=_unit_and_evidence([entry])),
                Cell(entry.quantity.better),
                *_comparison_cells(entry, group, _scale([entry])),
            )
            for entry in rows
        ],
        caption=caption,
        note=_note(group, rows),
    )


def points_table(rows: Sequence[Row], group: Group) -> Table:
    """Return a row per point of one quantity, under a row with the median of their ratios."""
    first, scale = rows[0], _scale(rows)
    known = sorted(
        ((entry.effect.ratio, entry) for entry in rows if entry.effect), key=lambda each: each[0]
    )
    cells = [row(entry.at, *_comparison_cells(entry, group, scale)) for entry in rows]
    if len(known) > 1:
        median = _median_cell(known)
        blanks = [Cell("")] * len(group.arms)
        cells.insert(0, row(f"median of {len(known)} points", *blanks, median, "", ""))
    parts = [_unit_and_evidence(rows), DIRECTIONS[first.quantity.better]]
    return Table(
        columns=columns(first.axis, *_titles(group)),
        rows=cells,
        caption=(
            f"{first.quantity.label} by {first.axis} ({', '.join(part for part in parts if part)})"
        ),
        note=_note(group, rows),
    )


def _note(group: Group, rows: Sequence[Row]) -> str:
    every = (figure for entry in rows for own in entry.figures.values() for figure in own)
    margin = " ±: uncertainty, k = 2." if any(each.uncertainty for each in every) else ""
    return _MEANS + (_RATIO if group.is_pair else "") + _CV + margin


def _titles(group: Group) -> list[str]:
    if len(group.arms) == 1:
        return ["#figure"]
    pairs = zip(group.letters, group.arms, strict=True)
    titles = [f"#{lettered(letter, named(letter, arm))}" for letter, arm in pairs]
    return [*titles, "#ratio", "#95 % interval", "verdict"] if group.is_pair else titles


def _unit_and_evidence(rows: Sequence[Row]) -> str:
    """Return the unit of a quantity, and how its energies are known."""
    known = unique(text for entry in rows if (text := evidence(entry)))
    return ", ".join(part for part in [_scale(rows).unit, *known] if part)


def _scale(rows: Sequence[Row]) -> Scale:
    centres = [
        entry.centres.get(arm) or spread.median
        for entry in rows
        for arm, spread in entry.spreads.items()
        if spread
    ]
    uppers = [figure.upper for entry in rows for own in entry.figures.values() for figure in own]
    return scale_for(rows[0].quantity.unit, *centres, *uppers)


def _comparison_cells(entry: Row, group: Group, scale: Scale) -> list[Cell]:
    """Return the arms' cells, and with two arms the ratio, its interval and the call."""
    cells = [_arm_cell(entry, arm, scale, _multiple(entry, arm, group)) for arm in group.arms]
    if not group.is_pair:
        return cells
    effect = entry.effect
    remark = entry.reason + (f"; forced: {entry.forced}" if entry.forced else "")
    return [
        *cells,
        _ratio_cell(entry, effect) if effect else Cell(MISSING),
        _interval_cell(entry, effect) if effect else Cell(MISSING),
        Cell("", _CALL_TONES.get(entry.call, "quiet"), entry.words, remark),
    ]


def _median_cell(known: Sequence[tuple[float, Row]]) -> Cell:
    """Return the median of the points' ratios, in favour of the arm that leads there."""
    _, entry = known[(len(known) - 1) // 2]
    ratios = [entry.in_favour(ratio) for ratio, _ in known]
    ends, text = entry.quantity.ends_text, entry.quantity.effect_text
    remark = f"points: {ends(min(ratios), max(ratios))}"
    return Cell(f"{entry.leader} {text(median(ratios))}", remark=remark)


def _ratio_cell(entry: Row, effect: Effect) -> Cell:
    """Return a ratio of at least 1 with the letter of the arm in whose favour it is."""
    ratio, medians = (
        entry.quantity.effect_text(entry.in_favour(of)) for of in (effect.ratio, effect.medians)
    )
    remark = f"medians: {medians}" if medians != ratio else ""
    if (interval := effect.interval) is not None:
        ends = [entry.in_favour(end) for end in (interval.lower, interval.upper)]
        favour = entry.in_favour(effect.ratio)
        ratio = entry.quantity.effect_text(favour, within=ends, end_digits=_END_DIGITS)
    return Cell(f"{entry.leader} {ratio}", remark=remark)


def _interval_cell(entry: Row, effect: Effect) -> Cell:
    """Return the interval; where t and bootstrap disagree, with both of them."""
    if effect.interval is None:
        return Cell(MISSING)
    parts = []
    if effect.pairs:
        parts.append(f"{effect.pairs} pairs")
    if effect.disagrees and effect.t is not None and effect.bootstrap is not None:
        parts.append(f"by t: {_ends(entry, effect.t)}")
        parts.append(f"by bootstrap: {_ends(entry, effect.bootstrap)}")
    if effect.least_p_value is not None:
        parts.append("no spread among the runs")
    return Cell(_ends(entry, effect.interval), remark="; ".join(parts))


def _ends(entry: Row, interval: Interval) -> str:
    ends = sorted(entry.in_favour(end) for end in (interval.lower, interval.upper))
    return entry.quantity.ends_text(ends[0], ends[1], _END_DIGITS)


def _multiple(entry: Row, arm: str, group: Group) -> str:
    """Return an arm's figure as a multiple of the first arm's, where arms are not compared.

    Of a share it is the difference.
    """
    first_arm = next(iter(group.arms))
    first, own = entry.centres.get(first_arm), entry.centres.get(arm)
    if group.is_pair or arm == first_arm or first is None or own is None:
        return ""
    quantity, letter = entry.quantity, group.letters[0]
    ratio = quantity.scaled(own) / quantity.scaled(first)
    if quantity.is_share:
        side = "below" if ratio < 1 else "above"
        return f"{quantity.effect_text(max(ratio, 1 / ratio))} {side} {letter}; "
    return f"{ratio_text(ratio)} x {letter}; "


def _arm_cell(entry: Row, arm: str, scale: Scale, multiple: str) -> Cell:
    """Return what an arm's bar is, with its spread; without a valid run, its runs' figures."""
    spread = entry.spreads.get(arm)
    if spread is not None:
        centre = entry.centres.get(arm)
        mean = spread.median if centre is None else centre
        valid = [figure for figure in entry.figures[arm] if figure.valid]
        shown = plus_minus(mean, uncertainty_of(mean, valid), scale)
        is_median = centre is None and spread.count > 1
        text = _spread_text(spread, entry.figures[arm], scale)
        return Cell(shown, remark=f"{'median; ' if is_median else ''}{multiple}{text}")
    figures = entry.figures.get(arm, ())
    values = [
        plus_minus(figure.value, figure.uncertainty, scale)
        for figure in figures
        if figure.value is not None
    ]
    if values:
        shown = ", ".join(values)
        return Cell(shown, "quiet", remark=entry.gaps[arm])
    uppers = [figure.upper for figure in figures if figure.upper is not None]
    if uppers:
        lowers = [figure.lower for figure in figures if figure.lower is not None]
        text = interval_text(min(lowers, default=None), max(uppers), scale)
        return Cell(text, "quiet", remark="bounds")
    note = next((figure.note for figure in figures if figure.note), "")
    return Cell(MISSING, "open", remark=note or entry.gaps.get(arm, NO_VALID_RUN))


def _spread_text(spread: Spread, figures: Sequence[RunFigure], scale: Scale) -> str:
    """Return how many runs are in the mean, of how many if not all, and the valid runs' range."""
    count, total = sum(f.in_mean for f in figures), sum(f.value is not None for f in figures)
    counts = f"n = {count}" if count == total else f"n = {count} of {total}"
    if spread.count == 1:
        return counts
    ends = f"{scaled(spread.minimum, scale)} to {scaled(spread.maximum, scale)}"
    text = f"{counts}, {ends}"
    if spread.cv is None:
        return text
    return f"{text}, CV {percent(spread.cv, 2)}{_GATE_REMARKS.get(spread.gate or '', '')}"


def by_quantity(rows: Sequence[Row]) -> list[list[Row]]:
    """Return rows by quantity, each with its points in their order."""
    found: dict[str, list[Row]] = {}
    for entry in rows:
        found.setdefault(entry.quantity.key, []).append(entry)
    return list(found.values())


def confidence_fold(rows: Sequence[Row]) -> Fold | None:
    """Return the statistics behind each call; ``None`` where no figure has a ratio."""
    known = [entry for entry in rows if entry.effect is not None]
    if not known:
        return None
    is_widened = any(entry.effect.accuracy for entry in known if entry.effect)
    swept = [known[0].axis] if known[0].axis else []
    titles = ("figure", *swept, "compared", "#floor", "#p", "#p, Holm", "#p, sign flips")
    table = Table(
        columns=columns(*titles, "spread of A", "spread of B"),
        rows=[_confidence_row(entry, entry.effect) for entry in known if entry.effect],
        caption="Statistics behind each verdict",
        note=(
            "p is that of the t test behind the interval; Holm's correction covers all verdicts of "
            "the workload. The verdicts in the table above depend on intervals and floor alone."
            + (_ENERGY_P_VALUES if is_widened else "")
        ),
    )
    return Fold("Statistics behind each verdict", [table], data=True)


def _confidence_row(entry: Row, effect: Effect) -> tuple[Cell, ...]:
    return row(
        entry.quantity.label,
        *([entry.at] if entry.axis else []),
        method(effect),
        Cell(entry.quantity.floor_text(effect.floor), remark=effect.floor_of),
        _p(effect.p_value),
        _p(effect.demand.p_value if effect.demand else None),
        _p(effect.p_value_sign_flips),
        *(_gate(spread) for spread in entry.spreads.values()),
    )


def method(effect: Effect) -> str:
    """Return how the interval of an effect was computed, and from how many runs."""
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
            rest = f", {counted(effect.parted, 'pair')} too far apart in time"
    kind = "t on pairs" if effect.pairs else "Welch's t"
    return f"{how}, {kind}{' and BCa bootstrap' if effect.bootstrap else ''}{rest}"


def _p(value: float | None) -> str:
    if value is None:
        return MISSING
    return "< 0.0001" if value < 1e-4 else number(value, 2)  # noqa: PLR2004 - no digits help there


def _gate(spread: Spread | None) -> Cell:
    if spread is None or spread.gate is None:
        return Cell(MISSING)
    words, tone = _GATE_BADGES[spread.gate]
    return Cell("", tone, words, f"CV {percent(spread.cv, 2)}")


def noise_section(subject: Subject) -> Section | None:
    """Return the noise floors of A/A sessions; ``None`` without such a session."""
    found, unused = noise_floors(subject), unused_sessions(subject)
    if not found and not unused:
        return None
    return Section(
        anchor="noise",
        title="Noise floor of one setting against itself",
        blocks=[*_unused(unused), *(_noise(found) if found else ())],
    )


def _unused(unused: Sequence[tuple[Session, str]]) -> Iterator[Notice]:
    """Yield the A/A sessions that set no floor on this page, with the reasons."""
    texts = [
        f"{session.workload}, session {session.session_id}: {reason}." for session, reason in unused
    ]
    if texts:
        yield Notice(
            "Sessions of one setting against itself without a noise floor on this page",
            texts,
            "open",
        )


def _noise(found: Sequence[Noise]) -> Iterator[Block]:
    yield Paragraph(
        "One setting alternated with itself: any difference between its two halves is noise of the "
        "host, the drive and the method. Differences below this noise are not reported as wins "
        "where an arm has the same settings, drive, power state and host. It does not apply to "
        "other runs."
    )
    apart = [each for each in found if each.effect.excludes_one and each.share > FLOOR]
    if apart:
        yield Notice(
            "One setting differs from itself",
            [
                f"{each.workload}, {each.quantity.label}: the halves are up to "
                f"{each.quantity.floor_text(each.share)} apart and their interval excludes "
                f"{each.quantity.no_effect}, so the order of runs has an effect here."
                for each in apart
            ],
            "warn",
        )
    headlines = [each for each in found if each.quantity.headline]
    others = [each for each in found if not each.quantity.headline]
    yield _noise_table(headlines, "Noise floor of headline figures and energy")
    if others:
        table = _noise_table(others, "Noise floor of other figures")
        yield Fold("Other figures", [table], data=True)


def _noise_table(found: Sequence[Noise], caption: str) -> Table:
    return listing(
        caption,
        found,
        {
            "workload": lambda each: each.workload,
            "figure": lambda each: each.quantity.label,
            "session": lambda each: each.session_id,
            "#pairs": lambda each: str(each.effect.pairs),
            "#second/first": lambda each: each.quantity.effect_text(each.effect.ratio, 4),
            "#95 % interval": lambda each: each.quantity.ends_text(
                each.effect.lower or 0.0, each.effect.upper or 0.0, 4
            ),
            "#noise floor": lambda each: each.quantity.floor_text(each.share),
        },
        "The ratio of geometric means of the halves, in pairs. The floor is the distance of the "
        f"interval's farther end from 1, and at least {percent(FLOOR, 1)}."
        + (_SHARES if any(each.quantity.is_share for each in found) else ""),
    )
