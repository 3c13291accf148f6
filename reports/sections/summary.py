"""The summary of a page: its sentences, its arms, its caveats, and a card per workload.

Each sentence links to its figures; its calls are those of the rows, never stronger ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from wattload.core.units import Unit
from wattload.reports.blocks import (
    Arm,
    Arms,
    Block,
    Card,
    Cards,
    Cell,
    Link,
    Section,
    Sentences,
    Tile,
    Tone,
    Words,
)
from wattload.reports.charts.themes import arm_role
from wattload.reports.quantity import (
    UNIT_SPACE,
    Scale,
    counted,
    interval_text,
    listed,
    number,
    percent,
    scale_for,
    scaled,
    with_unit,
)
from wattload.reports.runs.energy import phase_energies, whole_energy
from wattload.reports.sections.caveats import limits_notices, limits_sentence
from wattload.reports.sections.figures import energy_tiles, headline_tiles
from wattload.reports.sections.ratios import by_quantity
from wattload.reports.sections.wording import (
    CALL_ORDER,
    anchor,
    host_words,
    moment,
    run_badges,
    target_words,
    unique,
)
from wattload.reports.stats.comparison import Row, compare, sentence
from wattload.reports.stats.conditions import conditions
from wattload.reports.stats.effects import Gate
from wattload.reports.stats.figures import RunFigure
from wattload.reports.stats.subject import LETTERS, Group, Subject, lettered
from wattload.reports.stats.sweeps import points

_BAD_GATES: tuple[Gate, ...] = ("unstable", "noisy")
"""The gates that the summary mentions, the worst first."""

_WORKLOADS_MAX = 3
"""The most workloads in one sentence."""

_REASONS_MAX = 3
"""The most reasons in one sentence."""

_TILES_MAX = 4
_ARM_FACTS = ("drive", "firmware", "power state", "loader", "host")


def spread_words(groups: Sequence[tuple[Group, Sequence[Row]]]) -> Words:
    """Return which arms are noisy or unstable in how many figures; empty where none is.

    Args:
        groups: groups with the rows of their headline figures.
    """
    links = [
        link
        for group, rows in groups
        for link in _spread_links(group, rows, is_one=len(groups) == 1)
    ]
    return [part for link in links for part in ("; ", link)]


def _spread_links(group: Group, rows: Sequence[Row], *, is_one: bool) -> Iterator[Link]:
    where = "" if is_one else f" in {group.workload}"
    for letter, arm in zip(group.letters, group.arms, strict=True):
        spreads = [spread for row in rows if (spread := row.spreads.get(arm)) is not None]
        gates = [spread.gate for spread in spreads]
        counts = [f"{gate} in {gates.count(gate)}" for gate in _BAD_GATES if gate in gates]
        if counts:
            who = f" of {lettered(letter, arm)}" if len(group.arms) > 1 else ""
            cv = percent(max(spread.cv or 0.0 for spread in spreads), 2)
            text = f"the runs{who}{where} are {listed(counts)} of {len(spreads)} figures"
            text += f" (CV up to {cv})"
            if len(spreads) == 1:
                text = f"the runs{who}{where} are {gates[0]} (CV {cv})"
            yield Link(text, anchor("compare", group.workload))


def single_run_summary(subject: Subject) -> Iterator[Words]:
    """Yield up to three sentences: the first figures, the energy, and that nothing is compared."""
    groups = subject.groups[:_WORKLOADS_MAX]
    clauses = [words for group in groups if (words := _figures(group))]
    if clauses:
        yield (*_join(clauses), ".")
    yield _energy_sentence(subject)
    yield _no_comparison(subject)


def _join(clauses: Sequence[Words]) -> Iterator[str | Link]:
    for index, words in enumerate(clauses):
        yield from ("; ", *words) if index else words


def _named(group: Group) -> str:
    several = len(group.runs) > 1
    return group.workload + (f", first of {counted(len(group.runs), 'run')}" if several else "")


def _figures(group: Group) -> Words:
    """Return a workload's headline figures without its energy; empty where it has none."""
    run = group.runs[0]
    count = sum(metric.headline for metric in run.record.metrics)
    texts = [_text(tile) for tile in headline_tiles(run.record, 3)[:count] if tile.tone != "open"]
    if not texts:
        return ()
    return (Link(_named(group), anchor(run.id, "figures")), f": {listed(texts)}")


def _text(tile: Tile) -> str:
    return f"{tile.label} {tile.value}{UNIT_SPACE}{tile.unit}".rstrip()


def _energy_sentence(subject: Subject) -> Words:
    """Return each workload's energy with its evidence; where no workload has any, the reason."""
    clauses: list[Words] = []
    for group in subject.groups[:_WORKLOADS_MAX]:
        record = group.runs[0].record
        energies = phase_energies(record)
        energy = whole_energy(record) or (energies[-1] if energies else None)
        if energy is None:
            continue
        tile = energy_tiles(energy, 3)[0]
        if tile.tone != "open":
            where = Link(_named(group), "trust-evidence")
            clauses.append((where, f": {_text(tile)}, {energy.words}"))
    if clauses:
        return ("Energy of ", *_join(clauses), ".")
    reason = no_energy(subject.groups[0])
    return (Link("There is no figure of a drive's energy", "gaps"), f": {reason}.")


def no_energy(group: Group) -> str:
    """Return why a workload has no energy, by the record of its first run."""
    text = group.runs[0].record.power.choice.partition(";")[0].rstrip(".")
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


def _no_comparison(subject: Subject) -> Words:
    """Return why nothing is compared, and which repeats are noisy."""
    has_section = len(subject.arms) <= len(LETTERS) and len(subject.runs) > len(subject.groups)
    where = Link("side by side", "comparison")
    if len(subject.arms) > 2:  # noqa: PLR2004 - two arms are compared
        arms = listed(list(subject.arms))
        shown = (", or read them ", where) if has_section else ()
        return (
            f"There are {counted(len(subject.arms), 'arm')} by {subject.by.replace('_', ' ')} "
            f"({arms}); name the runs of two to have them compared",
            *shown,
            *_spread(subject),
            ".",
        )
    if len(subject.arms) > 1:
        return (f"Nothing is compared: {listed(list(subject.arms))} ran no workload in common.",)
    if has_section:
        opening = "Nothing is compared, for there is one arm only; its repeats stand "
        return (opening, where, *_spread(subject), ".")
    return (
        "Every workload was run once: ",
        Link("nothing is compared, and no spread is known", "method"),
        ".",
    )


def _spread(subject: Subject) -> Words:
    """Return which arms are noisy, where the page shows them side by side."""
    if len(subject.arms) > len(LETTERS):
        return ()
    groups = [group for group in subject.groups if len(group.runs) > 1]
    return spread_words(
        [
            (group, [row for row in compare(subject, group) if row.quantity.headline])
            for group in groups
        ]
    )


@dataclass(frozen=True, slots=True)
class _ComparedWorkload:
    """The headline rows of one workload: one for each quantity and point of a sweep."""

    group: Group
    axis: str
    rows: tuple[Row, ...]
    point_count: int

    @property
    def anchor(self) -> str:
        """The anchor of the workload's comparison."""
        return anchor("compare", self.group.workload)

    @property
    def charts(self) -> str:
        """The anchor of the arms' bars; of a sweep, that of the comparison."""
        return self.anchor if self.axis else f"{self.anchor}-arms"


def comparison_summary(subject: Subject) -> Iterator[Words]:
    """Yield three sentences on two arms: speed, energy, and for how many figures one is better."""
    workloads = [_compared_workload(subject, group) for group in subject.groups]
    yield _sentence("Speed", workloads, _speed_clause)
    yield _sentence("Energy", workloads, _energy_clause)
    yield _calls(workloads)


def _compared_workload(subject: Subject, group: Group) -> _ComparedWorkload:
    parts = points(group)
    rows = [
        row
        for point in parts
        if len(point.group.arms) == 2  # noqa: PLR2004 - A and B
        for row in compare(subject, point.group)
        if row.quantity.headline and row.quantity.better != "neither" and _has_figure(row)
        if row.call != "derived"
    ]
    return _ComparedWorkload(group, parts[0].axis, tuple(rows), len(parts))


def _has_figure(row: Row) -> bool:
    figures = [each for of_arm in row.figures.values() for each in of_arm]
    return any(each.value is not None or each.upper is not None for each in figures)


def _sentence(
    name: str, workloads: Sequence[_ComparedWorkload], clause: Callable[[_ComparedWorkload], Words]
) -> Words:
    """Return one sentence over all workloads, a clause for each of the first ones."""
    words: list[str | Link] = [f"{name}: "]
    for index, each in enumerate(workloads[:_WORKLOADS_MAX]):
        words += [("; " if index else "") + f"in {each.group.workload} ", *clause(each)]
    rest = len(workloads) - _WORKLOADS_MAX
    if rest > 0:
        words += ["; ", Link(f"{counted(rest, 'workload')} more", "comparison")]
    return (*words, ".")


def _speed_clause(workload: _ComparedWorkload) -> Words:
    if len(workload.group.arms) < 2:  # noqa: PLR2004 - A and B
        return (f"only {next(iter(workload.group.arms))} ran it",)
    rows = [row for row in workload.rows if not row.quantity.is_energy and row.effect]
    if not rows:
        return (Link("no ratio can be formed", workload.anchor),)
    first = [row for row in rows if row.quantity.key == rows[0].quantity.key]
    return _ratio(workload, first)


def _energy_clause(workload: _ComparedWorkload) -> Words:
    if len(workload.group.arms) < 2:  # noqa: PLR2004 - A and B
        return (f"only {next(iter(workload.group.arms))} ran it",)
    rows = [row for row in workload.rows if row.quantity.unit is Unit.JOULES]
    if not rows:
        return (Link("there is none", "gaps"), f" ({no_energy(workload.group)})")
    last = [row for row in rows if row.quantity.key == rows[-1].quantity.key]
    if not any(row.effect for row in last):
        return _bounds(workload, last[0])
    known = unique(
        each.evidence for row in last for of_arm in row.figures.values() for each in of_arm
    )
    return (*_ratio(workload, last), f" ({'; '.join(known)})")


def _ratio(workload: _ComparedWorkload, rows: Sequence[Row]) -> Words:
    """Return a quantity's ratio with its interval and call; over a sweep the median of its points.

    A sweep also has the ends of its ratios, and the number of points for each call.
    """
    known = [(row, row.effect) for row in rows if row.effect is not None]
    row, effect = known[0]
    ratios = sorted(each.ratio for _, each in known)
    text = sentence(replace(row, effect=replace(effect, ratio=median(ratios))), "A", "B")
    if len(known) > 1:
        text += f" at the median of {_points(len(known), workload.point_count)} of {workload.axis}"
        ends = f", from {number(ratios[0], 3)} to {number(ratios[-1], 3)}"
        calls = _count_calls([each for each, _ in known])
        called = [f"{words} at {counted(count, 'point')}" for words, count in calls.items()]
        return (Link(text, workload.anchor), f"{ends}: {listed(called)}")
    if workload.axis:
        total = counted(workload.point_count, "point")
        text += f" at {workload.axis} = {row.at}, the one of {total} with a ratio"
    if effect.lower is not None and effect.upper is not None:
        text += f", 95{UNIT_SPACE}% interval {_from_to(effect.lower, effect.upper)}"
    return (Link(text, workload.charts), f": {_words(row)}")


def _points(part: int, whole: int) -> str:
    """Return the number of points, or how many of how many."""
    return counted(whole, "point") if part == whole else f"{part} of {counted(whole, 'point')}"


def _from_to(lower: float, upper: float) -> str:
    """Return an interval with the digits that tables use, or with more if its ends look equal."""
    for digits in (4, 5, 6):
        ends = number(lower, digits), number(upper, digits)
        if ends[0] != ends[1]:
            break
    return " to ".join(ends)


def _bounds(workload: _ComparedWorkload, row: Row) -> Words:
    """Return each arm's figure or bounds of a quantity that has no ratio."""
    ends = [
        end
        for of_arm in row.figures.values()
        for each in of_arm
        for end in (each.value, each.upper)
    ]
    scale = scale_for(row.quantity.unit, *ends)
    parts = [
        _of_arm(letter, figures, scale)
        for letter, figures in zip(LETTERS, row.figures.values(), strict=False)
    ]
    where = workload.charts if any(end is not None for end in ends) else workload.anchor
    return (Link(listed(parts), where), f": {row.reason}")


def _of_arm(letter: str, figures: Sequence[RunFigure], scale: Scale) -> str:
    """Return an arm's median with its evidence, or else its bounds."""
    known = [each for each in figures if each.value is not None]
    if known:
        middle = median(each.value for each in known if each.value is not None)
        evidence = listed(unique(each.evidence for each in known if each.evidence))
        text = f"{letter} uses {with_unit(scaled(middle, scale, 3), scale)}"
        return f"{text} ({evidence})" if evidence else text
    uppers = [each.upper for each in figures if each.upper is not None]
    lowers = [each.lower for each in figures if each.lower is not None]
    if not uppers:
        return f"{letter} has none"
    text = interval_text(min(lowers, default=None), max(uppers), scale, 3)
    return f"{letter} uses {with_unit(text, scale)}"


def _calls(workloads: Sequence[_ComparedWorkload]) -> Words:
    """Return how often each call is made, why others are not, and which runs are noisy."""
    rows = [row for each in workloads for row in each.rows]
    figures = Link(counted(len(rows), "headline figure"), "comparison")
    reasons = unique(row.reason for row in rows if row.call == "barred")
    why = "; ".join(reasons[:_REASONS_MAX])
    spread = spread_words([(each.group, each.rows) for each in workloads])
    if all(row.call == "barred" for row in rows):
        reason = f" is called: {why or 'no figure has a ratio'}"
        return ("None of ", figures, reason, *spread, ".")
    called = [f"{words} in {count}" for words, count in _count_calls(rows).items()]
    return ("Of ", figures, f" {listed(called)}{f' ({why})' if why else ''}", *spread, ".")


def _words(row: Row) -> str:
    """Return the words of a row's call, marked where it was forced."""
    return f"{row.words} (forced despite its exclusions)" if row.forced else row.words


def _count_calls(rows: Sequence[Row]) -> Counter[str]:
    """Return how often each call is made, those that name a better arm first."""
    return Counter(map(_words, sorted(rows, key=lambda row: CALL_ORDER.index(row.call))))


def workload_card(subject: Subject, group: Group) -> Card:
    """Return the card of one workload: its first run's figures, or B/A where two arms ran it."""
    if group.is_pair:
        return _comparison_card(subject, group)
    run = group.runs[0]
    several = len(group.runs) > 1
    return Card(
        title=group.workload,
        anchor=anchor("compare", group.workload) if several else anchor("run", run.id),
        remark=f"first of {counted(len(group.runs), 'run')}" if several else f"run {run.id}",
        tiles=[_short(tile) for tile in headline_tiles(run.record, 3)],
        badges=run_badges(run, subject.faults(run)),
    )


def _short(tile: Tile) -> Tile:
    """Return a tile without its meaning; a missing figure is still named as such."""
    return replace(tile, note="not measured" if tile.tone == "open" else "")


def directed_rows(subject: Subject, group: Group) -> list[Row]:
    """Return the headline rows that have a better direction and ask a question of their own."""
    return [
        row
        for row in compare(subject, group)
        if row.quantity.headline and row.quantity.better != "neither" and row.call != "derived"
    ]


def _comparison_card(subject: Subject, group: Group) -> Card:
    rows = directed_rows(subject, group)
    counts = [counted(len(runs), "run") for runs in group.arms.values()]
    with_ratio = by_quantity([row for row in rows if row.effect])
    return Card(
        title=group.workload,
        anchor=anchor("compare", group.workload),
        remark=f"A {counts[0]}, B {counts[1]}",
        tiles=[_ratio_tile(own) for own in with_ratio[:_TILES_MAX]],
        badges=_call_badges(rows),
    )


def _ratio_tile(rows: Sequence[Row]) -> Tile:
    """Return a ratio with both medians, in the colour of the better arm.

    Over a sweep it is the median of the points' ratios with the ends of their range, and has an
    arm's colour where that arm is better at every point.
    """
    ratios = [row.effect.ratio for row in rows if row.effect]
    calls = {row.call for row in rows}
    tone: Tone = "quiet"
    if calls in ({"a"}, {"b"}):
        tone = "a" if calls == {"a"} else "b"
    note = _both_medians(rows[0])
    if len(rows) > 1:
        ends = f"{number(min(ratios), 3)} to {number(max(ratios), 3)}"
        note = f"median of {counted(len(ratios), 'point')} of {rows[0].axis}, {ends}"
    evidence = unique(each.evidence for of_arm in rows[0].figures.values() for each in of_arm)
    note += "".join(f"; {words}" for words in evidence if words)
    if any(row.forced for row in rows):
        note += "; forced"
    return Tile(f"{rows[0].quantity.label}, B/A", number(median(ratios), 3), "", note, tone)


def _both_medians(row: Row) -> str:
    medians = [spread.median for spread in row.spreads.values() if spread is not None]
    scale = scale_for(row.quantity.unit, *medians)
    both = " against ".join(scaled(value, scale, 3) for value in medians)
    at = f"{row.axis} = {row.at}: " if row.axis else ""
    return at + with_unit(both, scale)


def _call_badges(rows: Sequence[Row]) -> tuple[Cell, ...]:
    """Return how often each call was made, those that name a better arm first."""
    tones: dict[str, Tone] = {"a": "a", "b": "b"}
    found: dict[str, tuple[Tone, int]] = {}
    for row in sorted(rows, key=lambda row: CALL_ORDER.index(row.call)):
        _, count = found.get(row.words, ("quiet", 0))
        found[row.words] = (tones.get(row.call, "quiet"), count + 1)
    badges = [Cell(f"{words.replace('is ', '')}: {n}", tone) for words, (tone, n) in found.items()]
    forced = [Cell("forced", "bad")] if any(row.forced for row in rows) else []
    return (*badges, *forced)


def title(subject: Subject) -> str:
    """Return the title of the page."""
    workloads = listed([group.workload for group in subject.groups])
    if subject.compares:
        return f"{subject.arms[0]} against {subject.arms[1]}: {workloads}"
    places = unique(
        target.facts.path or target.facts.kind
        for run in subject.runs
        for target in run.record.targets
    )
    return f"{workloads} on {listed(places)}" if places else workloads


def summary_section(subject: Subject) -> Section:
    """Return the summary of the page; each of its sentences is computed from the records."""
    notices = limits_notices(subject)
    sentences = comparison_summary(subject) if subject.compares else single_run_summary(subject)
    blocks: list[Block] = [
        Sentences([_subject_sentence(subject), *sentences, limits_sentence(subject, notices)]),
    ]
    if 1 < len(subject.arms) <= len(LETTERS):
        blocks.append(_arms(subject))
    blocks.extend(notices)
    blocks.append(Cards([workload_card(subject, group) for group in subject.groups]))
    return Section(anchor="summary", title="Summary", blocks=blocks)


def _subject_sentence(subject: Subject) -> Words:
    records = [run.record for run in subject.runs]
    workloads = listed([group.workload for group in subject.groups])
    scales = listed(unique(record.workload.scale for record in records))
    loaders = listed(unique(record.workload.loader for record in records))
    hosts = listed(unique(host_words(record) for record in records))
    targets = listed(unique(target_words(t.facts) for r in records for t in r.targets))
    first = min(record.started_utc for record in records)
    last = max(record.finished_utc or record.started_utc for record in records)
    runs = Link(counted(len(records), "run"), anchor("run", subject.runs[0].id))
    what = (
        f" of {workloads} at scale {scales}, loader {loaders}, on "
        f"{hosts}, against {targets or 'no target'}, {_period(first, last)}"
    )
    if not subject.compares:
        return (runs, f"{what}.")
    arms = [lettered(*pair) for pair in zip(LETTERS, subject.arms, strict=False)]
    by = subject.by.replace("_", " ")
    return (runs, f"{what}; {listed(arms)} are ", Link(f"distinguished by {by}", "comparison"), ".")


def _period(first: str, last: str) -> str:
    """Return when the runs began and ended, with the day once if it is the same."""
    start, end = moment(first), moment(last)
    if start[:10] == end[:10]:
        return f"on {start[:10]} from {start[11:19]} to {end[11:]}"
    return f"from {start} to {end}"


def _arms(subject: Subject) -> Arms:
    """Return each arm with its number of runs, its drive and its settings."""
    arms = []
    for letter, arm in zip(LETTERS, subject.arms, strict=False):
        runs = [run for group in subject.groups for run in group.arms.get(arm, ())]
        valid = sum(not subject.faults(run) for run in runs)
        found = [conditions(run.record) for run in runs]
        facts = {fact: unique(each[fact] for each in found if fact in each) for fact in _ARM_FACTS}
        pairs = [("runs", f"{len(runs)}, {'all' if valid == len(runs) else valid} valid")]
        pairs += [(name, listed(values)) for name, values in facts.items() if values]
        arms.append(Arm(letter, arm_role(letter), arm, pairs))
    return Arms(arms)
