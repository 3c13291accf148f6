"""A report as text.

CSV with a row per run, phase and quantity, and one with a row per ratio; Markdown with the first
screen as a table for issue trackers.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import compress

from wattload.core.units import Unit
from wattload.reports.blocks import Cell, Paragraph, Table
from wattload.reports.render.json_export import plain
from wattload.reports.runs.energy import ALL_PHASES, every_energy
from wattload.reports.runs.hosts import shares_of
from wattload.reports.runs.load import Run, inputs_digest
from wattload.reports.sanitize import escape_unseen, sanitize
from wattload.reports.sections.hosts import HOSTS_MAX, host_blocks
from wattload.reports.sections.over_time import representative_run
from wattload.reports.sections.published import (
    TITLE,
    published_rows,
    published_table,
    published_texts,
)
from wattload.reports.sections.ratios import points_table, quantities_table
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.bars import Bar, Bars
from wattload.reports.stats.comparison import Row, compare
from wattload.reports.stats.conditions import has_excluded_energy
from wattload.reports.stats.effects import Effect
from wattload.reports.stats.figures import FOR_WORK, IN_WINDOW, quantities
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import LETTERS, Group, Subject, facts_of, lettered
from wattload.reports.stats.summary import (
    FirstScreen,
    VerdictRow,
    drive_limits,
    first_screen,
)
from wattload.results.labels import workload_title
from wattload.results.quantity import counted, listed, one_unit
from wattload.results.reading import view_named

LONGEST_LIST = 5
"""How many excluded runs and caveats Markdown names before it counts the rest."""

MOST_ROWS = 36
"""Rows of the Markdown table, so that the text stays below 60 lines."""

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
"""The start of a text that a spreadsheet may run; some skip blanks or accept wide signs."""

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#&$])")
_LINKED = re.compile(r"(?<=:)(?=//)|(?<=@)(?=\w)|(?<=\bwww)(?=\.)", re.IGNORECASE)
"""The start of an address that would become a link, or of a name that would be notified."""

_ZERO_WIDTH_SPACE = "\u200b"


def csv_report(subject: Subject) -> str:
    """Return every figure of every run, in SI base units; missing values are empty.

    ``uncertainty`` is that of energies and of what is derived from them, at k = 2.

    A row is one quantity of one phase of one run, with every setting that varies among the runs of
    a workload in a column named by its key. ``valid`` is whether the figure may be compared: the
    run by its checks, energy by its own checks, and by its evidence. Text that a spreadsheet would
    run as a formula begins with an apostrophe. In a run of several hosts, ``host`` is that of its
    own figures, in all timed phases.
    """
    keys = _varying(subject)
    rows: list[dict[str, object]] = []
    for run in subject.runs:
        facts = facts_of(run.record)
        of_run = _of_run(subject, run) | {_csv_text(key): facts.get(key) for key in keys}
        figures = [*_figures(subject, run), *_by_host(run)]
        rows += [of_run | figure for figure in figures] or [of_run]
    return _written([*rows, *_published(subject)])


def _published(subject: Subject) -> Iterator[dict[str, object]]:
    """Yield each figure of the rows of published results, and of runs next to them."""
    for row in (row for rows in published_rows(subject).values() for row in rows):
        for name, found in row.figures.items():
            yield {
                "workload": row.table,
                "arm": row.system,
                "label": row.remark,
                "quantity": name,
                "value": found.value,
                "evidence": "own" if row.is_own else "published",
                "valid": False,
                "why_not": f"not compared; by the formulas of {row.edition}",
            }


def ratios_report(subject: Subject) -> str:
    """Return a row for each ratio of two arms, B over A with its 95 % interval and its verdict.

    Empty if there is no ratio.
    """
    return _written(
        [
            _ratio(group, row, row.effect)
            for group in subject.groups
            if group.is_pair
            for row in compare(subject, group)
            if row.effect is not None
        ]
    )


def _written(rows: Sequence[Mapping[str, object]]) -> str:
    file = io.StringIO()
    columns = dict.fromkeys(key for row in rows for key in row)
    writer = csv.DictWriter(file, [*columns], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _field(value) for name, value in row.items()})
    return file.getvalue() if rows else ""


def _field(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _csv_text(value) if isinstance(value, str) else plain(value)


def _varying(subject: Subject) -> list[str]:
    """Return the settings that vary among the runs of a workload."""
    found: dict[str, None] = {}
    for name in dict.fromkeys(run.record.workload.name for run in subject.runs):
        of_runs = [facts_of(r.record) for r in subject.runs if r.record.workload.name == name]
        for key in dict.fromkeys(key for each in of_runs for key in each):
            if len({each.get(key) for each in of_runs}) > 1:
                found[key] = None
    return list(found)


def _of_run(subject: Subject, run: Run) -> dict[str, object]:
    record, place = run.record, run.record.comparison
    return {
        "run_id": run.id,
        "session_id": place.session_id,
        "workload": record.workload.name,
        "arm": subject.arm(run),
        "label": record.label,
        "block": place.block,
        "order": place.order,
        "started_utc": record.started_utc,
        "status": record.status,
        "seal": run.seal,
        "warm_up": place.warm_up,
    }


def _figures(subject: Subject, run: Run) -> Iterator[dict[str, object]]:
    faults, energy_faults = subject.faults(run), subject.energy_faults(run)
    for quantity, figure in quantities(run.record).values():
        why_not = [*faults, *(energy_faults if quantity.is_energy else ())]
        why_not += [] if figure.ranks else ["the evidence is too weak to compare"]
        yield {
            "phase": quantity.phase,
            "quantity": quantity.name,
            "unit": quantity.unit.value,
            "better": quantity.better,
            "headline": quantity.headline,
            "value": figure.value,
            "lower": figure.lower,
            "upper": figure.upper,
            "uncertainty": figure.uncertainty,
            "evidence": figure.evidence,
            "valid": not why_not and figure.value is not None,
            "why_not": "; ".join([*why_not, *([figure.note] if figure.note else [])]),
        }
    yield from _tails(run, [*faults, *energy_faults])


def _tails(run: Run, faults: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield the tail of each phase that has one, which is no quantity to compare by itself."""
    for energy in every_energy(run.record):
        if energy.tail_j is not None:
            notes = [*faults, *(["at least: still above idle power"] * energy.is_at_least)]
            yield {
                "phase": energy.phase,
                "quantity": f"tail within {energy.rest_s:g} s",
                "unit": Unit.JOULES.value,
                "better": "neither",
                "headline": False,
                "value": energy.tail_j,
                "uncertainty": energy.tail_uncertainty_j,
                "evidence": energy.words,
                "valid": not faults,
                "why_not": "; ".join(notes),
            }


def _by_host(run: Run) -> Iterator[dict[str, object]]:
    """Yield what each host of a run of several did, in all timed phases."""
    for share in shares_of(run.record)[:-1]:
        energy = share.energy
        for name, unit, value, uncertainty in (
            ("ranks", Unit.COUNT, share.rank_count, None),
            ("read", Unit.BYTES, share.read_bytes, None),
            ("written", Unit.BYTES, share.written_bytes, None),
            ("read rate", Unit.BYTES_PER_SECOND, share.reading_bytes_per_s, None),
            ("write rate", Unit.BYTES_PER_SECOND, share.writing_bytes_per_s, None),
            ("clock known to", Unit.SECONDS, share.clock_bound_s, None),
            *(
                (
                    (IN_WINDOW, Unit.JOULES, energy.energy_j, energy.uncertainty_j),
                    (FOR_WORK, Unit.JOULES, energy.work_j, energy.work_uncertainty_j),
                    ("mean power", Unit.WATTS, energy.mean_w, None),
                )
                if energy is not None
                else ()
            ),
        ):
            yield {
                "host": share.name,
                "phase": ALL_PHASES,
                "quantity": name,
                "unit": unit.value,
                "value": value,
                "uncertainty": uncertainty,
                "evidence": energy.words if energy and unit in (Unit.JOULES, Unit.WATTS) else "",
            }


def _ratio(group: Group, row: Row, effect: Effect) -> dict[str, object]:
    (a, b), quantity = group.arms, row.quantity
    is_share = quantity.is_share
    lower, upper = (
        math.log(end) if is_share and end else end for end in (effect.lower, effect.upper)
    )
    return {
        "workload": group.workload,
        "axis": row.axis,
        "at": row.at,
        "phase": quantity.phase,
        "quantity": quantity.name,
        "unit": quantity.unit.value,
        "better": quantity.better,
        "headline": quantity.headline,
        "arm_a": a,
        "arm_b": b,
        "n_a": effect.count_a,
        "n_b": effect.count_b,
        "pairs": effect.pairs,
        "mean_a": row.centres[a],
        "mean_b": row.centres[b],
        "ratio_b_over_a": None if is_share else effect.ratio,
        "difference_b_minus_a": math.log(effect.ratio) if is_share else None,
        "lower": lower,
        "upper": upper,
        "ratio_of_medians": None if is_share else effect.medians,
        "p_value": effect.p_value,
        "p_value_holm": effect.demand.p_value if effect.demand else None,
        "floor": quantity.floor(effect.floor),
        "call": row.call,
        "words": row.words,
        "reason": row.reason,
        "forced": row.forced,
    }


def _csv_text(text: str) -> str:
    """Return text of records as a cell: invisible characters escaped, formulas disabled."""
    shown = escape_unseen(text)
    return f"'{shown}" if _FORMULA.match(shown) else shown


def markdown_report(subject: Subject, *, full: bool = False) -> str:
    """Return the first screen as a table, in fewer than 60 lines.

    With ``full``, a table of the headline figures of each workload follows.
    """
    if not subject.runs:
        return "\n\n".join([f"## {TITLE}", *_published_parts(subject, full=full)]) + "\n"
    screen = first_screen(subject)
    versions = ", ".join(sorted({run.record.software.wattload for run in subject.runs}))
    parts = [
        f"## {_markdown_text(_title(subject))}",
        _markdown_text(finding(subject)),
        *([f"**{_markdown_text(screen.banner)}**"] if screen.banner else []),
        _runs(subject, screen),
        _first_table(subject, screen),
        f"Drive energy: {screen.no_power}." if screen.no_power else screen.measurand,
        *_drive_limits(subject),
        *_hosts(subject, screen),
        *_caveats(subject, screen),
        *(_tables(subject) if full else ()),
        *_published_parts(subject, full=full),
        f"Made by wattload {_markdown_text(versions)} from {counted(len(subject.runs), 'record')}; "
        f"SHA-256 of the records: `{inputs_digest(subject.runs)}`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _published_parts(subject: Subject, *, full: bool) -> Iterator[str]:
    yield from map(_markdown_text, published_texts(subject))
    for name, rows in published_rows(subject).items() if full else ():
        yield _table(published_table(name, rows))


def _title(subject: Subject) -> str:
    workloads = listed([workload_title(group.workload) for group in subject.groups])
    if 1 < len(subject.arms) <= len(LETTERS):
        return f"{' vs '.join(subject.arms)}: {workloads}"
    return f"{workloads}: {counted(len(subject.arms), 'arm')}"


def _runs(subject: Subject, screen: FirstScreen) -> str:
    """Return the arms with their numbers of valid runs, and which runs do not count."""
    shown = screen.arms[: len(LETTERS)]
    arms = [
        f"{lettered(letter, arm) if len(shown) > 1 else arm}: {_valid(subject, arm)}"
        for letter, arm in shown
    ]
    rest = len(screen.arms) - len(arms)
    parts = [", ".join(arms) + (f" and {counted(rest, 'more arm')}" if rest else "")]
    if screen.scale:
        parts.insert(0, f"Scale {screen.scale}")
    if screen.warm_up_count:
        parts.append(f"{counted(screen.warm_up_count, 'warm-up')} not counted")
    if screen.excluded:
        parts.append(f"{counted(len(screen.excluded), 'run')} excluded")
    if subject.left_out:
        parts.append(f"{counted(len(subject.left_out), 'record')} left out")
    if screen.failed:
        first, *others = screen.failed
        more = f" and {len(others)} more" if others else ""
        parts.append(f"failed check: {first.name}, {first.run_text}{more}")
    return _markdown_text("; ".join(parts)) + "."


def _valid(subject: Subject, arm: str) -> str:
    """Return the number of an arm's valid runs, and with valid energy where that is not all."""
    runs = [run for group in subject.groups for run in group.arms.get(arm, ())]
    valid = [run for run in runs if not subject.faults(run)]
    count = sum(not has_excluded_energy(subject, run) for run in valid)
    rest = "" if count == len(valid) else f", {count} with valid energy"
    return counted(len(valid), "valid run") + rest


def _first_table(subject: Subject, screen: FirstScreen) -> str:
    """Return a row per workload for two arms, otherwise one per workload and arm."""
    heads: tuple[str, ...]
    workloads = {group.workload for group in subject.groups}
    joule = view_named(min(workloads)).joule if len(workloads) == 1 else None
    per_joule = f"{joule.many} per J" if joule is not None else "MB/s per W"
    if subject.compares:
        titles = ("workload", "speed", "rate, A / B", "drive energy", "energy, A / B")
        heads = (*titles, f"{per_joule}, A / B", "confidence")
        rows = [_pair_cells(row) for row in screen.rows]
    else:
        heads = ("workload", "arm", "rate", "limit", "drive energy", per_joule, "confidence")
        rows = [cells for row in screen.rows for cells in _arm_cells(row)]
    if screen.no_power:
        kept = [not ("energy" in title or per_joule in title) for title in heads]
        heads, *rows = [tuple(compress(cells, kept)) for cells in (heads, *rows)]
    lines = [f"| {' | '.join(map(_markdown_text, cells))} |" for cells in (heads, *rows)]
    lines.insert(1, f"|{' :-- |' * len(heads)}")
    hidden = len(rows) - MOST_ROWS
    if hidden > 0:
        lines[-hidden:] = ["", f"{counted(hidden, 'more row')}: see the page, JSON or CSV."]
    return "\n".join(lines)


def _pair_cells(row: VerdictRow) -> tuple[str, ...]:
    return (
        _named(row),
        _answer(row.speed),
        _both(row.rates),
        _answer(row.energy),
        _both(row.energies),
        _both(row.efficiencies),
        _confidence(row),
    )


def _confidence(row: VerdictRow) -> str:
    scatter = row.scatter.text if row.scatter else ""
    return "; ".join(filter(None, (row.grade.text, row.counts, scatter)))


def _named(row: VerdictRow) -> str:
    name = f"{row.name} ({row.detail})" if row.detail else row.name
    return "; ".join(part for part in (name, row.paths, row.loads, row.at, row.times) if part)


def _answer(answer: Answer | None) -> str:
    """Return the winner with ratio and interval, or why there is none and the ratio."""
    if answer is None:
        return "only one arm ran it"
    part = f", {answer.part}" if answer.part else ""
    ratio = f"{answer.letter} {answer.ratio_text}{part}" if answer.ratio_text else ""
    interval = f" ({answer.interval_text})" if answer.interval_text else ""
    words = ("" if answer.shown is not None else answer.words), f"{ratio}{interval}"
    note = "" if answer.shown is not None else answer.note
    return "; ".join(filter(None, (*words, *answer.part_texts, note)))


def _both(bars: Bars) -> str:
    if not bars.bars:
        return bars.missing
    return f"{' / '.join(bar.text for bar in bars.bars)} {bars.title}"


def _arm_cells(row: VerdictRow) -> Iterator[tuple[str, ...]]:
    """Yield an arm's figures; of three arms or more, the fastest first."""
    arms = [*row.ranking, *(arm for arm in row.limits if arm not in row.ranking)]
    for arm in arms:
        rate, *of_energy = (
            f"{bar.text} {bars.title}"
            if (bar := bars.of(arm)) and not bars.missing
            else bars.missing
            for bars in (row.rates, row.energies, row.efficiencies)
        )
        letter = (row.rates.of(arm) or Bar(arm=arm, letter="", value=None)).letter
        name = lettered(letter, arm) if letter and len(arms) > 1 else arm
        yield (_named(row), name, rate, row.limits[arm], *of_energy, _confidence(row))


def _drive_limits(subject: Subject) -> Iterator[str]:
    """Yield from which point of each sweep on the drive is the limit."""
    for group in subject.groups:
        if limits := drive_limits(subject, group):
            sentences = " ".join(limits)
            yield _markdown_text(f"{workload_title(group.workload)}: {sentences}")


def _hosts(subject: Subject, screen: FirstScreen) -> Iterator[str]:
    """Yield what each host did in a run of each arm, if arms and hosts are few."""
    for group in subject.groups if len(subject.arms) <= 2 else ():  # noqa: PLR2004 - as a pair
        for arm, runs in group.arms.items():
            run = representative_run(subject, runs) or runs[0]
            if len(run.record.hosts) > HOSTS_MAX:
                continue
            with one_unit(Unit.JOULES, screen.energy_scale):
                blocks = host_blocks(run.record)
            for block in blocks:
                match block:
                    case Paragraph():
                        yield _markdown_text(f"{arm}: {block.text}")
                    case Table():
                        yield _table(block)


def _caveats(subject: Subject, screen: FirstScreen) -> Iterator[str]:
    left_out = (f"{each.name}: {each.reason}" for each in subject.left_out)
    lists = (
        ("Excluded runs", (*screen.excluded, *left_out)),
        ("Excluded energies", screen.excluded_energies),
        ("Before use", screen.warnings),
    )
    for title, texts in lists:
        if texts:
            lines = [f"- {_markdown_text(text)}" for text in texts[:LONGEST_LIST]]
            rest = len(texts) - len(lines)
            lines += [f"- and {rest} more"] if rest else []
            yield "\n".join([f"**{title}**", "", *lines])


def _tables(subject: Subject) -> Iterator[str]:
    """Yield the headline figures of each workload, by points for a sweep."""
    if len(subject.arms) > len(LETTERS):
        yield f"There are {len(subject.arms)} arms; at most {len(LETTERS)} are shown side by side."
        return
    for group in subject.groups:
        yield f"### {_markdown_text(group.workload)}"
        if len(group.arms) > 1:
            named = [lettered(*pair) for pair in zip(group.letters, group.arms, strict=True)]
            yield ", ".join(map(_markdown_text, named)) + "."
        heads = [row for row in compare(subject, group) if row.quantity.headline]
        yield from (_table(table) for table in _by_points(heads, group))


def _by_points(rows: Sequence[Row], group: Group) -> Iterator[Table]:
    alone = [row for row in rows if not row.axis]
    if alone:
        yield quantities_table(alone, group, "Headline figures and energy")
    for key in dict.fromkeys(row.quantity.key for row in rows if row.axis):
        swept = [row for row in rows if row.axis and row.quantity.key == key]
        yield points_table(swept, group)


def _table(table: Table) -> str:
    titles = [_markdown_text(column.title) for column in table.columns]
    rules = ["--:" if column.figures else ":--" for column in table.columns]
    rows = [[_cell(cell) for cell in cells] for cells in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in (titles, rules, *rows)]
    return "\n".join([f"{_markdown_text(table.caption)}:", "", *lines])


def _cell(cell: Cell) -> str:
    text = _markdown_text(" ".join(part for part in (cell.badge, cell.text) if part))
    return f"{text}<br><sub>{_markdown_text(cell.remark)}</sub>" if cell.remark else text


def _markdown_text(text: str) -> str:
    """Return text of records without markup, links, line breaks or mentions."""
    marked = _SPECIAL.sub(r"\\\1", " ".join(sanitize(text).split()))
    return _LINKED.sub(_ZERO_WIDTH_SPACE, marked)
