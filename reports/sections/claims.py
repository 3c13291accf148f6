"""Published figures next to measured ones, what differs between the two, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Facts,
    Fold,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    row,
)
from wattload.reports.claims.comparison import (
    WIDEST,
    ClaimVerdict,
    ComparedClaims,
    Match,
    Measured,
    compare_claims,
    conditions_for,
    is_as_a,
    match_condition,
    unmeasured_claims,
)
from wattload.reports.claims.papers import Claim, Closure, Consistency, Notation, Paper, text_of
from wattload.reports.sections.wording import anchor, sentence_of
from wattload.reports.stats.subject import LETTERS, Subject, lettered
from wattload.results.quantity import (
    MISSING,
    UNIT_SPACE,
    Scale,
    counted,
    number,
    quantity,
    scale_for,
    with_unit,
)

_VERDICTS: dict[ClaimVerdict, tuple[str, Tone]] = {
    "agrees": ("agrees", "good"),
    "differs": ("differs", "warn"),
    "wide": ("too wide to tell", "quiet"),
    "few": ("too few runs", "quiet"),
    "unmeasured": ("not measured", "open"),
    "unlike": ("different work", "quiet"),
    "virtual": ("virtual drive: no evidence", "warn"),
    "absolute": ("not judged", "quiet"),
}
_STANDINGS: dict[Consistency, tuple[str, Tone]] = {
    "consistent": ("consistent", "good"),
    "inconsistent": ("inconsistent", "warn"),
    "unchecked": ("cannot be checked", "quiet"),
}
_CLOSURES: dict[bool | None, tuple[str, Tone]] = {
    True: _STANDINGS["consistent"],
    False: _STANDINGS["inconsistent"],
    None: ("derived", "quiet"),
}
_MATCH_TONES: dict[Match, Tone] = {"alike": "good", "differs": "warn", "other name": "warn"}
_DIGITS = 5
"""Significant digits of a closure's sides: as many as printed figures have, such as 281.35."""

_RULES = (
    "Each figure below was published for other machines. The 95 % interval measured here agrees "
    f"with it if it contains it, excludes 1 and spans a factor of at most {WIDEST}. It differs if "
    "it does not contain it; otherwise it is too wide to tell. No verdict says that a paper is "
    "right or wrong, and agreement on other drives, power states, sizes or hosts does not "
    "reproduce it: the second table of each part lists the conditions. Percentages are read as the "
    "ratio that a formula gives."
)


def claims_section(subject: Subject) -> Section | None:
    """Return the published figures that the page measures; ``None`` where there are none."""
    found = compare_claims(subject)
    if not found:
        return None
    shown = list({part.paper.id: part.paper for part in found}.values())
    parts = [_part(part) for part in found]
    parts += [_arithmetic(paper) for paper in shown if paper.closures]
    rest = unmeasured_claims(found)
    if rest:
        parts.append(_rest(rest, shown))
    return Section(
        anchor="claims",
        title="Published figures",
        blocks=[Paragraph(_RULES)],
        parts=parts,
    )


def _part(part: ComparedClaims) -> Section:
    paper, pair = part.paper, part.pair
    first, second = (lettered(*each) for each in zip(LETTERS, part.group.arms, strict=False))
    a, b = (first, second) if part.straight else (second, first)
    roles = (
        f"{paper.publisher}, “{paper.name}”: {pair.a} (a) against {pair.b} (b). On this page, "
        f"{a} is a and {b} is b."
    )
    roles += f" {pair.remark}" if pair.remark else ""
    if pair.unlike and not any(is_as_a(pair, runs) for runs in part.group.arms.values()):
        roles += f" {pair.unlike}"
    return Section(
        anchor=anchor("claims", paper.id, part.group.workload, pair.between),
        title=f"{part.group.workload}: published figures for {pair.a} against {pair.b}",
        blocks=[Paragraph(roles), _claims(part), _setup(part)],
    )


def _claims(part: ComparedClaims) -> Table:
    rows = [
        cells
        for claim, measured in part.claims
        for index, one in enumerate(measured)
        for cells in [_claim_row(claim, one, first=index == 0)]
    ]
    return Table(
        columns=columns(
            "published", "#read as", "#measured", "#95 % interval", "n, A and B", "verdict"
        ),
        rows=rows,
        caption="Published and measured ratios",
        note="Measured is the formula under each ratio, computed from the geometric means of the "
        "valid runs, with its interval. Intervals of energy are widened by the uncertainty that "
        "the records state. The ratio of medians is added where it differs.",
    )


def _claim_row(claim: Claim, measured: Measured, *, first: bool) -> tuple[Cell, ...]:
    words, tone = _VERDICTS[measured.verdict]
    hollow = measured.verdict in ("virtual", "unmeasured", "unlike")
    interval = MISSING
    if measured.lower is not None and measured.upper is not None:
        interval = f"{number(measured.lower, 3)} to {number(measured.upper, 3)}"
    runs = MISSING
    if measured.counts is not None:
        runs = f"{measured.counts[0]},{UNIT_SPACE}{measured.counts[1]}"
    return row(
        _published(claim) if first else Cell(""),
        Cell(_read(claim), remark=claim.formula) if first else Cell(""),
        Cell(_measured(claim, measured), "quiet" if hollow else "", remark=_remark(measured)),
        interval,
        runs,
        Cell("", tone, words, measured.reason),
    )


def _measured(claim: Claim, measured: Measured) -> str:
    """Return the ratio, or the page's own figure next to an absolute one."""
    if claim.parsed.under is None:
        return quantity(measured.value, claim.parsed.unit, 4)
    return number(measured.ratio, 3)


def _remark(measured: Measured) -> str:
    """Return the point of a sweep, and the ratio of medians where it is printed differently."""
    parts = [measured.at] if measured.at else []
    if number(measured.medians, 3) != number(measured.ratio, 3):
        parts.append(f"of medians {number(measured.medians, 3)}")
    return "; ".join(parts)


def _published(claim: Claim) -> Cell:
    extent = "up to " if claim.printed.up_to else ""
    at = f", {claim.point_text}" if claim.point else ""
    words, _ = _STANDINGS[claim.consistency.status]
    remark = f"{words}: {claim.consistency.reason}. {claim.remark}".strip()
    return Cell(f"{extent}“{claim.printed.words}”{at}", remark=remark)


def _read(claim: Claim) -> str:
    value = claim.printed.read
    if claim.printed.reading is Notation.ABSOLUTE:
        return quantity(value, claim.parsed.unit, 4)
    return number(value, 3)


def _setup(part: ComparedClaims) -> Table:
    arms = list(part.group.arms.values())
    of_a, of_b = arms if part.straight else reversed(arms)
    letters = LETTERS[:2] if part.straight else LETTERS[1::-1]
    rows = []
    for each in conditions_for(part.pair, part.paper.conditions, part.group.workload):
        b = each.b or each.a
        here_a, here_b = (
            match_condition(of_a, each, each.a),
            match_condition(of_b, each, b),
        )
        rows.append(
            row(
                str(each.fact),
                each.a.words,
                Cell(here_a.text, _MATCH_TONES.get(here_a.match, "open"), here_a.match),
                b.words,
                Cell(here_b.text, _MATCH_TONES.get(here_b.match, "open"), here_b.match),
            )
        )
    return Table(
        columns=columns(
            "condition", "paper, a", f"this page, {letters[0]}", "paper, b",
            f"this page, {letters[1]}",
        ),
        rows=rows,
        caption="Conditions of the paper and of this page",
        note="A name is alike if the record contains it, a number if it is within 10 %.",
    )  # fmt: skip


def _arithmetic(paper: Paper) -> Section:
    return Section(
        anchor=anchor("claims", paper.id, "arithmetic"),
        title=f"{paper.publisher}: set-up and consistency of the published figures",
        blocks=[_printed_setup(paper), _closures(paper)],
    )


def _printed_setup(paper: Paper) -> Facts:
    return Facts([("set-up as printed", "; ".join(paper.setup) + ".")], "prose")


def _closures(paper: Paper) -> Table:
    return Table(
        columns=columns("what should hold", "#one side", "#other side", "verdict"),
        rows=[_closure_row(paper, closure) for closure in paper.closures],
        caption=f"Arithmetic of “{paper.name}”, from its printed figures alone",
    )


def _closure_row(paper: Paper, closure: Closure) -> tuple[Cell, ...]:
    term, other = closure.sides
    sign = "≤" if closure.relation == "at_most" else "="
    formula = text_of(term) + ("" if other is None else f" {sign} {text_of(other)}")
    words, tone = _CLOSURES[paper.closes(closure)]
    return row(
        Cell(sentence_of(closure.says), remark=formula.replace("_", " ")),
        *_sides(paper.computed(closure), closure.unit),
        Cell("", tone, words),
    )


def _sides(values: tuple[float, float | None], unit: str) -> list[str]:
    """Return both sides in one scale, with as many digits as printed figures have."""
    scale = scale_for(Unit(unit), *values) if unit in set(Unit) else Scale(1, unit)
    return [
        MISSING if value is None else with_unit(_without_zeros(scale.shown(value)), scale)
        for value in values
    ]


def _without_zeros(value: float) -> str:
    text = number(value, _DIGITS)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _rest(rest: Sequence[tuple[Paper, tuple[Claim, ...]]], shown: Sequence[Paper]) -> Section:
    count = counted(sum(len(claims) for _, claims in rest), "published figure")
    return Section(
        anchor="claims-unmeasured",
        title="Not measured on this page",
        blocks=[
            Fold(f"{count}, with what each would need", [*_rest_folds(rest, shown)], data=True),
        ],
    )


def _rest_folds(
    rest: Sequence[tuple[Paper, tuple[Claim, ...]]], shown: Sequence[Paper]
) -> Iterator[Block]:
    for paper, claims in rest:
        blocks: list[Block] = [_needs(claims, paper)]
        if paper not in shown:
            blocks += [_printed_setup(paper), _closures(paper)]
        yield Fold(f"{paper.publisher}: {paper.name} ({len(claims)})", blocks)


def _needs(claims: Sequence[Claim], paper: Paper) -> Table:
    return Table(
        columns=columns("published", "between", "#read as", "needs"),
        rows=[
            row(
                _published(claim),
                _between(paper, claim),
                Cell(_read(claim), remark=claim.formula),
                claim.needs or f"runs of {claim.workload} in both arms",
            )
            for claim in claims
        ],
        caption=f"Not measured here: {paper.name}",
    )


def _between(paper: Paper, claim: Claim) -> str:
    pair = paper.pairs[claim.pair]
    return pair.a if pair.b is None else f"{pair.a} (a), {pair.b} (b)"
