"""Published figures beside the measured ones, what differs between the two, and what is missing."""

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
from wattload.reports.claims.arithmetic import text_of
from wattload.reports.claims.beside import WIDEST, Beside, Measured, Verdict, beside, unanswered
from wattload.reports.claims.facts import Alike, conditions_of, held
from wattload.reports.claims.model import Claim, Closure, Consistency, Paper, Reading
from wattload.reports.quantity import (
    MISSING,
    UNIT_SPACE,
    Scale,
    counted,
    number,
    quantity,
    scale_for,
    with_unit,
)
from wattload.reports.sections.wording import anchor, sentence_of
from wattload.reports.subject import LETTERS, Subject, lettered

_VERDICTS: dict[Verdict, tuple[str, Tone]] = {
    "agrees": ("agrees", "good"),
    "differs": ("differs", "warn"),
    "wide": ("too wide to tell", "quiet"),
    "few": ("too few runs", "quiet"),
    "unmeasured": ("not measured", "open"),
    "unlike": ("not the same work", "quiet"),
    "virtual": ("virtual drive: shows nothing of it", "warn"),
}
_STANDINGS: dict[Consistency, tuple[str, Tone]] = {
    "consistent": ("closes", "good"),
    "inconsistent": ("does not close", "warn"),
    "unchecked": ("can't be checked", "quiet"),
}
_CLOSES: dict[bool | None, tuple[str, Tone]] = {
    True: _STANDINGS["consistent"],
    False: _STANDINGS["inconsistent"],
    None: ("follows", "quiet"),
}
_ALIKE: dict[Alike, Tone] = {"alike": "good", "differs": "warn", "not so named": "warn"}
_DIGITS = 5
"""Of a closure's sides: the longest printed figures, such as 281.35, have as many."""

_RULES = (
    "Each figure below was published on other machines. The 95 % interval measured here agrees "
    f"with it where it holds it, excludes 1 and spans a factor of {WIDEST} at most; it differs "
    "where it does not hold it, and is else too wide to tell. None of these says that the paper is "
    "right or wrong, and agreement on other drives, power states, sizes or hosts repeats "
    "nothing of it: the second table of each part says what is alike. Percentages are read as the "
    "ratio that a formula gives."
)


def claims_section(subject: Subject) -> Section | None:
    """Return the claims that this page's workloads answer; ``None`` where there are none."""
    found = beside(subject)
    if not found:
        return None
    shown = list({part.paper.id: part.paper for part in found}.values())
    parts = [_part(part) for part in found]
    parts += [_arithmetic(paper) for paper in shown if paper.closures]
    rest = unanswered(found)
    if rest:
        parts.append(_rest(rest, shown))
    return Section(
        anchor="claims",
        title="Beside published figures",
        blocks=[Paragraph(_RULES)],
        parts=parts,
    )


def _part(part: Beside) -> Section:
    paper, pair = part.paper, part.pair
    first, second = (lettered(*each) for each in zip(LETTERS, part.group.arms, strict=False))
    a, b = (first, second) if part.straight else (second, first)
    roles = (
        f"{paper.publisher}, “{paper.name}”: {pair.a} (a) against {pair.b} (b). On this page {a} "
        f"stands for a, {b} for b."
    )
    return Section(
        anchor=anchor("claims", paper.id, part.group.workload),
        title=f"{part.group.workload}, as published of {pair.a} against {pair.b}",
        blocks=[Paragraph(roles), _claims(part), _setup(part)],
    )


def _claims(part: Beside) -> Table:
    rows = [
        cells
        for claim, measured in part.claims
        for index, one in enumerate(measured)
        for cells in [_claim_row(claim, one, first=index == 0)]
    ]
    return Table(
        columns=columns(
            "published", "#as a ratio", "#measured", "#95 % interval", "n, A and B", "verdict"
        ),
        rows=rows,
        caption="Published and measured ratios",
        note="Measured is the formula under each ratio, of the geometric means of the valid runs, "
        "with its interval, of energy widened by the uncertainty that the records state; where the "
        "ratio of their medians is another one, it stands under it.",
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
        Cell(number(measured.ratio, 3), "quiet" if hollow else "", remark=_remark(measured)),
        interval,
        runs,
        Cell("", tone, words, measured.reason),
    )


def _remark(measured: Measured) -> str:
    """Return the point of a sweep, and the ratio of medians where it reads otherwise."""
    said = [measured.at] if measured.at else []
    if number(measured.medians, 3) != number(measured.ratio, 3):
        said.append(f"of the medians {number(measured.medians, 3)}")
    return "; ".join(said)


def _published(claim: Claim) -> Cell:
    extent = "up to " if claim.printed.up_to else ""
    at = f", {claim.point}" if claim.point else ""
    words, _ = _STANDINGS[claim.consistency.status]
    told = f"{words}: {claim.consistency.reason}."
    return Cell(f"{extent}“{claim.printed.words}”{at}", remark=f"{told} {claim.remark}".strip())


def _read(claim: Claim) -> str:
    value = claim.printed.read
    if claim.printed.reading is Reading.ABSOLUTE:
        return quantity(value, claim.parsed.unit, 4)
    return number(value, 3)


def _setup(part: Beside) -> Table:
    arms = list(part.group.arms.values())
    of_a, of_b = arms if part.straight else reversed(arms)
    letters = LETTERS[:2] if part.straight else LETTERS[1::-1]
    rows = []
    for each in conditions_of(part.pair, part.paper.conditions, part.group.workload):
        b = each.b or each.a
        here_a, here_b = held(of_a, each.fact, each.a), held(of_b, each.fact, b)
        rows.append(
            row(
                each.fact.value,
                each.a.words,
                Cell(here_a.text, _ALIKE.get(here_a.alike, "open"), here_a.alike),
                b.words,
                Cell(here_b.text, _ALIKE.get(here_b.alike, "open"), here_b.alike),
            )
        )
    return Table(
        columns=columns(
            "condition", "paper, a", f"this page, {letters[0]}", "paper, b",
            f"this page, {letters[1]}",
        ),
        rows=rows,
        caption="What is alike and what differs",
        note="A name is alike where the record holds it, a number within 10 %.",
    )  # fmt: skip


def _arithmetic(paper: Paper) -> Section:
    return Section(
        anchor=anchor("claims", paper.id, "arithmetic"),
        title=f"{paper.publisher}: set-up, and how the published figures close",
        blocks=[_printed_setup(paper), _closures(paper)],
    )


def _printed_setup(paper: Paper) -> Facts:
    return Facts([("set-up as printed", "; ".join(paper.setup) + ".")], "prose")


def _closures(paper: Paper) -> Table:
    return Table(
        columns=columns("what should hold", "#one way", "#the other way", "verdict"),
        rows=[_closure_row(paper, closure) for closure in paper.closures],
        caption=f"Arithmetic of “{paper.name}”, from its printed figures alone",
    )


def _closure_row(paper: Paper, closure: Closure) -> tuple[Cell, ...]:
    term, other = closure.sides
    sign = "≤" if closure.relation == "at_most" else "="
    formula = text_of(term) + ("" if other is None else f" {sign} {text_of(other)}")
    words, tone = _CLOSES[paper.closes(closure)]
    return row(
        Cell(sentence_of(closure.says), remark=formula.replace("_", " ")),
        *_sides(paper.computed(closure), closure.unit),
        Cell("", tone, words),
    )


def _sides(values: tuple[float, float | None], unit: str) -> list[str]:
    """Return both sides in one scale, with as many digits as tell the last printed one."""
    scale = scale_for(Unit(unit), *values) if unit in set(Unit) else Scale(1, unit)
    return [
        MISSING if value is None else with_unit(_short(scale.shown(value)), scale)
        for value in values
    ]


def _short(value: float) -> str:
    text = number(value, _DIGITS)
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def _rest(rest: Sequence[tuple[Paper, tuple[Claim, ...]]], shown: Sequence[Paper]) -> Section:
    count = counted(sum(len(claims) for _, claims in rest), "published figure")
    return Section(
        anchor="claims-unmeasured",
        title="Not measured by this page",
        blocks=[
            Fold(f"{count}, and what each would need", [*_rest_folds(rest, shown)], looked_up=True),
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
                claim.needs,
            )
            for claim in claims
        ],
        caption=f"Not measured here: {paper.name}",
    )


def _between(paper: Paper, claim: Claim) -> str:
    pair = paper.pairs[claim.pair]
    return pair.a if pair.b is None else f"{pair.a} (a), {pair.b} (b)"
