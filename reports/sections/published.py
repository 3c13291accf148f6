"""Published results of MLPerf Storage, with runs of this page next to them.

Figures are by MLPerf Storage's formulas. A row of a published set is the mean of its runs, as the
benchmark scores it. No row is better than another: machines and conditions differ.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from statistics import fmean
from typing import Any, NamedTuple

from wattload.core.mlperf.edition import editions, nearest_edition
from wattload.core.mlperf.formulas import Value
from wattload.core.mlperf.notes import Pair, nearest_pairs
from wattload.core.mlperf.published import PublishedSet
from wattload.core.mlperf.rules import judge
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Fold,
    Paragraph,
    Section,
    Table,
    columns,
    listing,
    row,
)  # fmt: skip
from wattload.reports.runs.energy import phase_energies
from wattload.reports.sections.wording import anchor
from wattload.reports.stats.subject import Subject
from wattload.results.facts import Run, divided, sum_if_known
from wattload.results.identity_cache import cache_by_identity
from wattload.results.labels import label
from wattload.results.published import PublishedView
from wattload.results.quantity import (
    MISSING,
    counted,
    listed,
    number,
    percent,
    quantity,
    ratio_text,
    whole,
)  # fmt: skip
from wattload.results.reading import run_of, view_of
from wattload.results.registry import every_results

TITLE = "Published results (MLPerf Storage)"
CLOSE, NEAR = 1e-3, 1e-2
"""Relative differences between a reported figure and the recomputed one."""
_RULES = (
    "Each table has the published sets of one workload, and runs of this page of the same workload "
    "(own). All figures are computed from the rawest data there is, by the formulas of the edition "
    "that the parameters match; the whole-block rate is the same in every edition. Hosts, sizes "
    "and software differ, so no row is better than another. Recomputed figures are compared with "
    "the reported ones by the formulas of the edition that comes nearest."
)


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """The runs of a published set in one table, or those of an arm that did equal work.

    Figures are by the formulas of ``edition``, from whose parameters the row has ``differences``.
    Energies are those of drives, in a run and per unit of the view; published rows have none.
    """

    table: str
    system: str
    remark: str
    edition: str
    differences: Sequence[str]
    figures: Mapping[str, Value]
    data_from: str
    facts: Sequence[Any]
    is_own: bool = False
    energy_j: float | None = None
    joules_per_unit: float | None = None


class Recomputed(NamedTuple):
    """A published run, its rawest data, and the reported figure that is farthest from it.

    That is by the formulas of ``edition``; ``worst`` is ``None`` without any.
    """

    run: str
    source: str
    edition: str
    worst: Pair | None

    @property
    def difference(self) -> float:
        return self.worst.difference if self.worst else inf


@cache
def _views() -> Mapping[str, PublishedView[Any]]:
    views = (each.view.published for each in every_results())
    return {view.kind: view for view in views if view is not None}


@cache_by_identity
def published_rows(subject: Subject) -> Mapping[str, Sequence[PublishedRow]]:
    """Return the rows of each table by score; the tables with runs of ours come first.

    Runs of ours are only in tables that have published rows.
    """
    rows = list(_published(subject))
    tables = {row.table: row.edition for row in rows}
    rows += [row for row in _own(subject, tables) if row.table in tables]
    rows.sort(key=lambda row: (-(_score(row.figures) or 0.0), row.system))
    own = {row.table for row in rows if row.is_own}
    order = sorted(tables, key=lambda table: (table not in own, table))
    return {table: [row for row in rows if row.table == table] for table in order}


def _published(subject: Subject) -> Iterator[PublishedRow]:
    for of in subject.published:
        rows: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for run in of.runs:
            for table, name, facts in _views()[run.facts.kind].rows(run.facts):
                rows[table, name].append(facts)
        nearest = nearest_edition(of.facts, of.runs[0].settings, of.edition)
        memory = sum_if_known(of.runs[0].host_memory_bytes)
        memory_text = f"{quantity(memory, Unit.BYTES)} of memory" if memory else ""
        rules = failed_rules(of)
        failed = f"fails {listed(rules)}" if rules else ""
        for (table, name), found in rows.items():
            parts = (of.organisation, of.division, name, memory_text, failed)
            remark = ", ".join(filter(None, parts))
            yield _row(table, of.system, remark, found, nearest)


@cache_by_identity
def failed_rules(of: PublishedSet) -> list[str]:
    """Return the rules of its edition that a set fails; none are known without a division."""
    edition, _ = nearest_edition(of.facts, of.runs[0].settings, of.edition)
    judged = judge(of, editions()[edition]) if of.division else ()
    return [each.rule for each in judged if each.fails(of.division)]


def _own(subject: Subject, others: Mapping[str, str]) -> Iterator[PublishedRow]:
    """Yield the rows of valid runs of ours; ``others`` has the edition of each table's first."""
    alike: dict[Any, list[tuple[Run[Any], Any]]] = defaultdict(list)
    for run in (run for group in subject.groups for run in group.runs):
        view, known = view_of(run.record).published, run_of(run.record)
        if view is None or known is None or subject.faults(run):
            continue
        remark = f"scale {run.record.workload.scale}, loader {run.record.workload.loader}"
        for table, _, facts in view.rows(view.own(known)):
            work = tuple(view.conditions(facts).items())
            alike[table, subject.arm(run), remark, work].append((known, facts))
    for (table, arm, remark, _), members in alike.items():
        runs, found = [run for run, _ in members], [facts for _, facts in members]
        view = _views()[found[0].kind]
        joules = sum_if_known(
            energy.energy_j for run in runs for energy in phase_energies(run.record)
            if energy.phase in view.phases
        ) or None  # fmt: skip
        edition, differences = nearest_edition(found[0], {}, others.get(table))
        nearest = edition, [*differences, *filter(None, [view.other_work])]
        yield _row(
            table, arm, remark, found, nearest, is_own=True,
            energy_j=divided(joules, len(runs)),
            joules_per_unit=divided(joules, sum_if_known(map(view.count, runs))),
        )  # fmt: skip


def _row(
    table: str, system: str, remark: str, facts: Sequence[Any],
    nearest: tuple[str, Sequence[str]], **own: Any,
) -> PublishedRow:  # fmt: skip
    data = Counter(map(_views()[facts[0].kind].data_from, facts))
    several = [f"{count} {text}" for text, count in data.items()]
    return PublishedRow(
        table=table, system=system, remark=remark, edition=nearest[0], differences=nearest[1],
        figures=_figures(facts, nearest[0]), facts=facts,
        data_from=listed(several if len(data) > 1 else [*data]), **own,
    )  # fmt: skip


def _figures(facts: Sequence[Any], edition: str) -> Mapping[str, Value]:
    """Return the mean of each figure over the runs that have it."""
    figures = {}
    for name, (_, of) in _views()[facts[0].kind].figures.items():
        found = [of(each, edition) for each in facts]
        known = [each.value for each in found if each.value is not None]
        reason = next((each.reason for each in found if each.reason), "")
        if 0 < len(known) < len(found):
            reason = f"of {len(known)} of {len(found)} runs; {reason}"
        figures[name] = Value(fmean(known) if known else None, reason)
    return figures


def _score(figures: Mapping[str, Value]) -> float | None:
    return next(iter(figures.values())).value


@cache_by_identity
def recomputed_runs(subject: Subject) -> Sequence[Recomputed]:
    """Return what each published run reports, and what follows from its data."""
    found = []
    for of in subject.published:
        own, _ = nearest_edition(of.facts, of.runs[0].settings, of.edition)
        for run in of.runs:
            source = _views()[run.facts.kind].data_from(run.facts)
            edition, pairs = nearest_pairs(of, run, own)
            known = [each for each in pairs if each.rule == "recomputed"]
            worst = max(known, key=lambda pair: pair.difference, default=None)
            found.append(Recomputed(f"{of.path}/{run.name}", source, edition, worst))
    return found


def published_texts(subject: Subject) -> list[str]:
    """Return how many runs reproduce, and the factors of runs of ours to a single published row."""
    if not subject.published:
        return []
    runs = recomputed_runs(subject)
    known = [each for each in runs if each.worst]
    close = Counter(each.source for each in known if each.difference <= CLOSE)
    far = sum(each.difference > NEAR for each in known)
    sources = listed([f"{whole(count)} from {source}" for source, count in close.items()])
    counts = {
        f"within {percent(CLOSE, 1)} of the reported one ({sources})": close.total(),
        f"within {percent(NEAR, 1)}": len(known) - close.total() - far,
        "farther from it": far,
        "not recomputable": len(runs) - len(known),
    }
    parts = [f"{whole(count)} {words}" for words, count in counts.items() if count]
    of = f"Recomputed figures of {counted(len(runs), 'published run')}"
    failing = [rules for each in subject.published if (rules := failed_rules(each))]
    by_rule = Counter(rule for rules in failing for rule in rules)
    named = listed([f"{rule} {whole(count)}" for rule, count in by_rule.items()])
    sets = counted(len(subject.published), "published set")
    fails = "No published set fails a rule of its edition."
    if failing:
        fails = f"{whole(len(failing))} of {sets} fail a rule of their edition: {named}."
    return [f"{of}: {listed(parts)}.", fails, *_places(subject), *_factors(subject)]


def _places(subject: Subject) -> Iterator[str]:
    """Yield the place of each row of ours among several published ones."""
    for table, rows in published_rows(subject).items():
        if sum(not each.is_own for each in rows) > 1:
            yield from (
                f"{table}: {row.system} ({row.remark}) is row {whole(place)} of {len(rows)}."
                for place, row in enumerate(rows, 1)
                if row.is_own
            )


def _factors(subject: Subject) -> Iterator[str]:
    """Yield the plain factor of each row of ours to the only published one of its table.

    Both are by the formulas of the published one. What differs is named: it is no verdict.
    """
    for table, rows in published_rows(subject).items():
        others = [each for each in rows if not each.is_own]
        for own in (each for each in rows if each.is_own and len(others) == 1):
            view, other = _views()[own.facts[0].kind], others[0]
            name, (unit, _) = next(iter(view.figures.items()))
            what = _title(name, unit)
            ratio = divided(_score(_figures(own.facts, other.edition)), _score(other.figures))
            factor = f"{ratio_text(ratio)} times" if ratio is not None else "an unknown share of"
            ours, theirs = view.conditions(own.facts[0]), view.conditions(other.facts[0])
            differing = [
                f"{key} {text} instead of {theirs[key]}"
                for key, text in ours.items()
                if text != theirs[key]
            ]
            yield (
                f"{table}: {own.system} has {factor} the published {what} of "
                f"{other.system} ({other.remark}), by the formulas of {other.edition} and under "
                f"other conditions: {'; '.join(['another host', own.remark, *differing])}."
            )


def published_section(subject: Subject) -> Section | None:
    """Return the tables of all published results; ``None`` where there are none."""
    if not subject.published:
        return None
    tables = published_rows(subject)
    known = [(each, each.worst) for each in recomputed_runs(subject) if each.worst]
    far = [(each, pair) for each, pair in known if pair.difference > NEAR]
    title = f"{counted(len(far), 'run')} over {percent(NEAR, 1)} from the reported figure"
    differing = listing(title, far, {
        "run": lambda each: each[0].run,
        "figure": lambda each: each[1].what,
        "#reported": lambda each: number(each[1].said),
        "#recomputed": lambda each: number(each[1].got),
        "#difference": lambda each: percent(each[1].difference),
        "formulas of": lambda each: each[0].edition,
    })  # fmt: skip
    blocks: list[Block] = [Paragraph(_RULES)]
    blocks += [Fold(title, [differing])] if far else []
    parts = [
        Section(
            anchor=anchor("published", name), title=name, remark=counted(len(rows), "row"),
            blocks=[published_table(name, rows)],
            folded=len(tables) > 1 and not any(row.is_own for row in rows),
        )
        for name, rows in tables.items()
    ]  # fmt: skip
    return Section(anchor="published", title=TITLE, blocks=blocks, parts=parts, open=True)


def published_table(name: str, rows: Sequence[PublishedRow]) -> Table:
    """Return one table: own and published rows, by score."""
    view = _views()[rows[0].facts[0].kind]
    units = {key: unit for key, (unit, _) in view.figures.items()}
    unknown = [
        f"{_title(key, units[key])}{f' {MISSING}' * (found.value is None)}: {found.reason}."
        for each in rows
        for key, found in each.figures.items()
        if found.reason
    ]
    titles = [_title(key, unit) for key, unit in units.items()]
    return Table(
        columns=columns(
            "system", "#runs", *(f"#{title}" for title in titles), "data from", "edition",
            "drive energy",
        ),
        rows=[
            row(
                Cell(each.system, badge="own" if each.is_own else "", remark=each.remark),
                whole(len(each.facts)),
                *(quantity(found.value, units[key]) for key, found in each.figures.items()),
                each.data_from,
                Cell("none", remark=f"{', '.join(each.differences)}; computed as {each.edition}")
                if each.differences else each.edition,
                _energy(each, view.unit),
            )
            for each in rows
        ],
        caption=f"{name}, by {titles[0]}",
        note=" ".join(dict.fromkeys(unknown)),
    )  # fmt: skip


def _title(name: str, unit: Unit) -> str:
    return label(name, unit) + ("/s" if unit is Unit.SAMPLES_PER_SECOND else "")


def _energy(row: PublishedRow, unit: str) -> Cell:
    if row.energy_j is None:
        return Cell("not measured" if row.is_own else "not published", "quiet")
    per_unit = f"{quantity(row.joules_per_unit, Unit.JOULES)} per {unit}"
    return Cell(per_unit, remark=f"{quantity(row.energy_j, Unit.JOULES)} a run")
