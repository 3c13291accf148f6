"""The first screen: who wins in speed and in energy, by how much, and how far to trust it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from wattload.reports.blocks import (
    Block,
    Finding,
    Link,
    Paragraph,
    Tone,
    VerdictLine,
    Verdicts,
    Words,
)
from wattload.reports.charts.bars import Bar, Dot, split_svg
from wattload.reports.charts.themes import arm_role
from wattload.reports.sanitize import shortened
from wattload.reports.sections.over_time import first_charts
from wattload.reports.sections.published import published_texts
from wattload.reports.sections.trust import has_complete, limits_notices
from wattload.reports.sections.wording import anchor, caveats_of, demo_text, is_sound, unique
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.bars import Bars
from wattload.reports.stats.subject import LETTERS, Subject, named
from wattload.reports.stats.summary import FirstScreen, Scatter, VerdictRow, arm_names, speed_ratios
from wattload.reports.stats.sweeps import points
from wattload.results.labels import workload_title
from wattload.results.quantity import (
    MISSING,
    TIMES,
    UNIT_SPACE,
    Scale,
    counted,
    listed,
    number,
    plus_minus,
)

_TONES: dict[str, Tone] = {letter: arm_role(letter) for letter in LETTERS}  # type: ignore[misc]  # roles of arms are tones
_GRADE_TONES: dict[str, Tone] = {"high": "good", "medium": "warn", "low": "warn"}
"""Red is left for a grade without a possible verdict."""

_PLACES_MAX = 4
"""Targets that a title names; of more it says how many there are."""

_NAME_MAX = 23
"""Characters of a name over a bar, where arms have no letters."""

_PRINTED = Scale(1, "")
"""The figures of the first screen are in the unit that is printed."""


def title(subject: Subject) -> str:
    workloads = listed([workload_title(group.workload) for group in subject.groups])
    if subject.compares:
        return f"{subject.arms[0]} vs {subject.arms[1]}: {workloads}"
    if len(subject.arms) > len(LETTERS):
        return f"{counted(len(subject.arms), 'arm')}: {workloads}"
    places = unique(
        target.facts.path or target.facts.kind
        for run in subject.runs
        for target in run.record.targets
    )
    if len(places) > _PLACES_MAX:
        return f"{workloads} on {counted(len(places), 'target')}"
    return f"{workloads} on {listed(places)}" if places else workloads


def heading(subject: Subject) -> list[tuple[str, str]]:
    """Return the arms of the page's heading: a letter, empty for one arm, and a name."""
    if len(subject.arms) == 1 or len(subject.arms) > len(LETTERS):
        return [("", title(subject))]
    return list(zip(LETTERS, arm_names(subject).values(), strict=False))


def byline(subject: Subject, screen: FirstScreen) -> Words:
    """Return how many runs there are, from when, and what the checks warn of, with links."""
    days = sorted({run.record.started_utc[:10] for run in subject.runs})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    scale = [f"scale {screen.scale}"] if screen.scale else []
    if demo := demo_text(screen):
        scale = [demo]
    caveats, which = caveats_of(subject)
    parts: list[str | Link] = [
        " · ".join([_repeats(subject, screen), *scale, when, ""]),
        Link(caveats if which or is_sound(screen) else "checks", "trust"),
        f": {which}" if which else "",
    ]
    if screen.warm_up_count:
        parts.append(f" · {counted(screen.warm_up_count, 'warm-up')} not counted")
    left = len(screen.excluded) + len(subject.left_out)
    if left:
        parts += [" · ", Link(f"{counted(left, 'run')} excluded", "excluded")]
    if energies := len(screen.excluded_energies):
        parts += [" · ", Link(f"{counted(energies, 'energy', 'energies')} excluded", "trust")]
    if subject.forced:
        parts += [" · ", Link("forced despite exclusions", "excluded")]
    return parts


def failed_check(screen: FirstScreen) -> Words:
    """Return the most important failed check that no row names, and how many more there are."""
    if not screen.failed:
        return ()
    first, *others = screen.failed
    more = f" and {len(others)} more" if others else ""
    return [
        "Failed check: ",
        Link(first.name, anchor("run", first.run)),
        f", {first.run_text}{more}",
    ]


def _repeats(subject: Subject, screen: FirstScreen) -> str:
    """Return how many pairs of runs are compared in a workload, or else the runs of an arm."""
    effects = [row.speed.row.effect if row.speed and row.speed.row else None for row in screen.rows]
    pairs = {
        effect.pairs if effect and not row.at else 0
        for effect, row in zip(effects, screen.rows, strict=True)
    }
    if pairs and all(pairs):
        return _range(pairs, "alternating pair")
    places = [points(group) for group in subject.groups]
    counts = {len(runs) for of in places for point in of for runs in point.group.arms.values()} or {
        0
    }
    several = len(subject.arms) > 1 or len(subject.groups) > 1
    sessions = [
        {(run.record.comparison.session_id, run.record.comparison.interleave) for run in group.runs}
        for group in subject.groups
    ]
    turns = all(len(own) == 1 and own.pop()[1] == "abba" for own in sessions)
    order = ", alternating" if turns and len(subject.arms) > 1 else ""
    swept = {len(of) for of in places if len(of) > 1}
    at = f" at each of {_range(swept, 'point')}" if swept else ""
    return f"{_range(counts, 'run')}{' each' if several else ''}{at}{order}"


def _range(counts: Collection[int], noun: str) -> str:
    low, high = min(counts), max(counts)
    return counted(high, noun) if low == high else f"{low} to {counted(high, noun)}"


def first_section(subject: Subject, screen: FirstScreen) -> list[Block]:
    """Return the verdicts with their bars, and what was measured over time."""
    blocks: list[Block] = [_verdicts(subject, screen)]
    has_column = len(subject.arms) == 1 and any(row.devices for row in screen.rows)
    if screen.no_power and not has_column and not subject.compares:  # as the finding has it
        blocks.append(Paragraph(no_power_text(screen), quiet=True))
    if all(subject.faults(run) for run in subject.runs):
        place = len(blocks) if has_complete(subject) else 0  # before figures that are no results
        blocks[place:place] = limits_notices(subject)[:1]
    if screen.measurand:
        blocks.append(Paragraph(screen.measurand, quiet=True))
    if screen.warnings:
        blocks.append(Paragraph(" ".join(screen.warnings)))
    blocks += map(Paragraph, published_texts(subject))
    if (charts := first_charts(subject)) is not None:
        blocks.append(charts)
    return blocks


def no_power_text(screen: FirstScreen) -> str:
    """Return why no workload has a drive's energy, as a sentence."""
    verdict, _, reason = screen.no_power.partition(": ")
    return f"Drive energy: {verdict}{f' ({reason})' if reason else ''}."


def _verdicts(subject: Subject, screen: FirstScreen) -> Verdicts:
    has_drive = not screen.no_power
    if subject.compares:
        titles = ["Speed", "Drive energy"] if has_drive else ["Speed"]
        bars = "A and B, each run a dot"
        if any(bar.mean_count < len(bar.marks) for row in screen.rows for bar in row.every_bar):
            bars += "; hollow: not in the mean"
    elif len(subject.arms) > 1:
        titles, bars = ["Limit"], "The fastest arm first, each run a dot"
        if any(row.loads for row in screen.rows):
            bars = "Each run a dot; arms that are not comparable are not ranked"
        if not any(len(group.arms) > 1 for group in subject.groups):
            bars = "The arms have no workload in common: nothing is compared"
    else:
        has_energy = has_drive or any(row.devices for row in screen.rows)
        titles = ["Rate", "Energy", "Limit"] if has_energy else ["Rate", "Limit"]
        bars = "Each run a dot" if any(len(group.runs) > 1 for group in subject.groups) else ""
    if not any(each.has_figure for row in screen.rows for each in row.bars):
        bars = ""
    lines = [
        _line(subject, row, titles, has_drive=has_drive, has_bars=bool(bars)) for row in screen.rows
    ]
    return Verdicts(titles=titles, bars=bars, lines=lines)


def _line(
    subject: Subject, row: VerdictRow, titles: Sequence[str], *, has_drive: bool, has_bars: bool
) -> VerdictLine:
    found = {
        "Speed": _finding(row.speed),
        "Drive energy": _finding(row.energy),
        "Rate": _figure(row.rates),
        "Energy": _energy(row),
        "Limit": Finding(text="", remark=_limits(row)),
    }
    has_section = len(subject.arms) <= len(LETTERS)
    return VerdictLine(
        title=row.name,
        remark=row.detail,
        notes=[
            *([row.paths] if row.paths else []),
            *([row.loads] if row.loads else []),
            *([ratios] if (ratios := _ratios(row)) else []),
            *([ceilings] if (ceilings := _ceilings(row.rates)) else []),
            *([row.at] if row.at else []),
            *([row.times] if row.times else []),
            *([row.counts] if row.counts else []),
            *([row.shared_limit] if row.shared_limit else []),
            *([row.node] if row.node else []),
            *([_scatter(row.scatter)] if row.scatter else []),
        ],
        anchor=anchor("workload", row.group.workload) if has_section else "runs",
        findings=[found[title] for title in titles],
        svg=_panels(row, has_energy=has_drive) if has_bars else "",
        grade=row.grade.label,
        tone="bad" if row.grade.is_short else _GRADE_TONES.get(row.grade.word, "open"),
        reason=row.grade.reason,
        evidence=row.grade.link,
    )


def _ratios(row: VerdictRow) -> str:
    """Return how much faster the best of three arms or more is, with the intervals if known."""
    if len(row.ranking) > len(LETTERS):
        return ""
    letters = {bar.arm: bar.letter for bar in row.rates.bars}
    known = [each for each in speed_ratios(row) if each[-1]]
    if not known:
        return ""
    texts = [(f"{ratio}{TIMES} ({ends})", letters[arm]) for arm, _, ratio, ends in known]
    (first, arm), *others = texts
    rest = "".join(f", {ratio} as {other}" for ratio, other in others)
    hold = f"95{UNIT_SPACE}% CI{'s hold together' if others else ''}"
    pairs = {each.pairs for _, each, _, _ in known}
    of = f", {_range(pairs, 'pair')}{' each' if others else ''}" if all(pairs) else ""
    return f"{letters[row.ranking[0]]} is {first} as fast as {arm}{rest}; {hold}{of}"


def _ceilings(bars: Bars) -> str:
    """Return what bounds a rate: the same work without storage."""
    texts = [name for name, _ in bars.ceilings]
    return f"without storage: {', '.join(texts)}" if texts else ""


def _scatter(scatter: Scatter) -> Words:
    """Return which figures scatter most, with a link to the run that is farthest away."""
    run = Link(scatter.run_name, anchor("run", scatter.run))
    return [f"{scatter.words}; ", run, scatter.ending]


def _finding(answer: Answer | None) -> Finding:
    """Return the answer on speed or energy; who is ahead has a letter, a winner also a colour."""
    if answer is None:
        return Finding(text="not compared", tone="quiet")
    name = named(answer.letter, answer.leader) if answer.leader is not None else ""
    lines = [line for line in (answer.interval_text, answer.note, *answer.part_texts) if line]
    if answer.shown is not None:
        known = (answer.part, name if name != answer.letter else "")
        return Finding(
            text=answer.ratio_text,
            remark="; ".join(filter(None, known)),
            lines=lines,
            letter=answer.letter,
            tone=_TONES[answer.letter] if answer.winner else "",
        )
    # An interval on both sides of 1 is the reason.
    is_plain = bool(answer.interval_text) and answer.lower is not None and answer.lower <= 1
    if answer.ratio_text:
        part = f", {answer.part}" if answer.part else ""
        lines = [f"{name}: {answer.ratio_text}{part}", *lines]
    return Finding(
        text=answer.verdict,
        remark="" if is_plain else answer.reason,
        lines=lines,
        tone="quiet" if answer.outcome == "missing" else "",
    )


def _figure(bars: Bars) -> Finding:
    """Return the figure of a single arm, and its range over the runs."""
    known = bars.bars[0] if bars.bars else None
    if known is None or (known.value is None and known.upper is None):
        return Finding(text=MISSING, remark=bars.missing, tone="quiet")
    text = known.text
    if known.value is not None and known.uncertainty is not None:
        text = plus_minus(known.value, known.uncertainty, _PRINTED)
    return Finding(
        text=f"{text} {bars.title}", remark=_spread([mark.value for mark in known.marks])
    )


def _figure_text(bars: Bars) -> str:
    """Return the figure of a single arm without its uncertainty, which that of energy implies."""
    return f"{bars.bars[0].text} {bars.title}" if bars.bars else MISSING


def _energy(row: VerdictRow) -> Finding:
    """Return the energy of the drive, or else of another device, each with its name."""
    drive = _figure(row.energies)
    others = []
    for bars in row.devices:
        device, _, unit = bars.title.partition(", ")
        others.append((f"{bars.bars[0].text} {unit}", device))
    if drive.tone != "quiet":
        drives = counted(row.drive_count, "drive") if row.drive_count > 1 else "drive"
        parts = [
            drives,
            _figure_text(row.efficiencies),
            *(f"{d} {text}" for text, d in others),
        ]
        return Finding(text=drive.text, remark=", ".join(parts))
    if not others:
        return drive
    text, device = others[0]
    return Finding(text=text, remark=f"{device}; drive {drive.remark.replace(': ', ', ')}")


def _limits(row: VerdictRow) -> str:
    """Return what limits the rate, by arm where they differ."""
    known = {
        arm: words.removeprefix("limited by ").removeprefix("limit ") or "unknown"
        for arm, words in row.limits.items()
    }
    short = {arm: re.split(r"[,;:]| \(", words)[0] for arm, words in known.items()}
    for alike in (known, short):
        if len(set(alike.values())) == 1:
            return next(iter(alike.values()))
    names = {bar.arm: named(bar.letter or bar.arm, bar.arm) for bar in row.rates.bars}
    return "; ".join(f"{names.get(arm, arm)}: {words}" for arm, words in short.items())


def _spread(values: Sequence[float]) -> str:
    if len(values) < 2:  # noqa: PLR2004 - one run has no spread
        return ""
    shown = [number(end, 3) for end in (min(values), max(values))]
    return f"{len(values)} runs, {' to '.join(shown)}"


def _panels(row: VerdictRow, *, has_energy: bool) -> str:
    """Return the bars of a workload; only the figures of winners are in bold."""
    faster, thriftier = (answer.winner if answer else None for answer in (row.speed, row.energy))
    panels = [(row.rates, faster)]
    if has_energy:
        panels += [(row.energies, thriftier), (row.efficiencies, thriftier)]
    panels += [(bars, None) for bars in row.devices]
    return "".join(_panel(bars, row.ranking, won) for bars, won in panels if bars.has_figure)


def _panel(bars: Bars, ranking: Sequence[str], winner: str | None) -> str:
    """Return the bars of a quantity; of three arms or more in the order of their ranking."""
    rank = {arm: index for index, arm in enumerate(ranking)}
    has_letters = len(bars.bars) <= len(LETTERS)
    names = {
        bar.arm: bar.letter if has_letters else shortened(bar.arm, _NAME_MAX) for bar in bars.bars
    }
    if len(names) == 1:
        names = dict.fromkeys(names, "")
    ordered = sorted(bars.bars, key=lambda bar: rank.get(bar.arm, len(rank)))
    return split_svg(
        bars.title,
        [
            Bar(
                label=names[bar.arm],
                role=arm_role(bar.letter) if has_letters else "device",
                value=bar.value,
                lower=bar.lower if bar.value is None else None,
                upper=bar.upper if bar.value is None else None,
                dots=[Dot(mark.value, mark.in_mean) for mark in bar.marks]
                if len(bar.marks) > 1
                else [],
                strong=bar.arm == winner,
                reason=MISSING,
            )
            for bar in ordered
        ],
        _PRINTED,
        bars.ceilings,
    )
