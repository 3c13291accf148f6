"""The finding of a page in one sentence, which is never stronger than its verdicts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence

from wattload.core.power import Evidence
from wattload.reports.runs.load import Run
from wattload.reports.sanitize import shortened
from wattload.reports.stats.answers import Answer
from wattload.reports.stats.bars import Bar, activity
from wattload.reports.stats.effects import MINIMUM_PAIRS, first_arm
from wattload.reports.stats.pairs import began_s
from wattload.reports.stats.subject import LETTERS, Subject
from wattload.reports.stats.summary import (
    FirstScreen,
    VerdictRow,
    arm_names,
    first_screen,
    speed_ratios,
)
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import TIMES, UNIT_SPACE, counted, listed

_NAME_MAX = 40
"""Characters of the name of an arm; a longer one loses its middle."""

_NAMED_MAX = 4
"""Arms that are named of three or more; the rest is counted."""

_TOO_FEW = "too few runs to show a difference"
_LETTER = re.compile(r"(?<![\w./-])[A-F](?![\w/'-])")
"""The letter of an arm in a reason, not a part of a path or of a word such as A/A."""

_OWN = {Evidence.SELF_REPORTED: "meter", Evidence.ESTIMATED: "estimate"}
"""What drives account for their energy by, where no other meter does."""


@cache_by_identity
def finding(subject: Subject) -> str:
    """Return who is ahead in each workload and by how much, or that no difference is shown.

    ``± 3 %`` is the largest difference that the runs do not exclude. Of one arm, and of three or
    more, the sentence has the figures. Names of arms are as the user gave them.
    """
    screen = first_screen(subject)
    no_energy = _no_energy(screen)
    names: dict[str, list[str]] = {}
    for place, row in enumerate(screen.rows):
        name, words = _clause(subject, row, is_first=not place, has_energy=not no_energy)
        names.setdefault(words, []).append(name)
    clauses = [": ".join(filter(None, (listed(own), words))) for words, own in names.items()]
    found = "; ".join(filter(None, [*clauses, no_energy])) or "no run is compared"
    text = f"{_illustrates(subject, screen)}{_once(found, screen)}"
    if not any(text.startswith(shortened(arm, _NAME_MAX)) for arm in subject.arms):
        text = text[:1].upper() + text[1:]
    text += " (forced despite exclusions)" if subject.forced else ""
    return f"{text}{_left_out(subject)}."


def _left_out(subject: Subject) -> str:
    """Return which arms are left out as none of their runs is valid, so that others are compared.

    The first fault of a run that is left out is just that.
    """
    own: dict[str, list[Run]] = {}
    for run in subject.runs:
        if run.id in subject.strays and subject.arm(run) not in subject.arms:
            own.setdefault(subject.arm(run), []).append(run)
    invalid = [
        arm for arm, runs in own.items() if all(len(subject.faults(run)) > 1 for run in runs)
    ]
    names = [shortened(arm, _NAME_MAX) for arm in invalid]
    return f"; no valid run of {_some(names, 'or')}" if invalid else ""


def _spelled(text: str, names: Mapping[str, str]) -> str:
    """Return a reason, which names arms by their letters, with the arms' names instead."""
    return _LETTER.sub(lambda found: names.get(found[0], found[0]), text)


def _reason(row: VerdictRow, text: str) -> str:
    arms = zip(row.group.letters, row.group.arms, strict=False)
    return _spelled(text, {letter: _name(row, arm) for letter, arm in arms})


def _once(found: str, screen: FirstScreen) -> str:
    """Name the drives' own meters once, at a finding's end, if all energies are theirs."""
    by, *others = {_by(row) for row in screen.rows if row.energies.has_figure} or {""}
    is_repeated = bool(by) and not others and found.count(by) > 1
    return f"{found.replace(by, '')}; energy{by}" if is_repeated else found


def _illustrates(subject: Subject, screen: FirstScreen) -> str:
    """Return which drives are simulated, to be read before anything else."""
    if not screen.banner:
        return ""
    which = screen.banner.removeprefix("illustration: ").replace(",", ";").partition(";")[0]
    names = [shortened(name, _NAME_MAX) for name in arm_names(subject).values()]
    return f"{_spelled(which, dict(zip(LETTERS, names, strict=False)))}, no verdict: "


def _no_energy(screen: FirstScreen) -> str:
    """Return why several workloads have no comparison of energies, if that is the same in all."""
    words = {_why_no_energy(row) for row in screen.rows}
    return words.pop() if len(screen.rows) > 1 == len(words) else ""


def _why_no_energy(row: VerdictRow) -> str:
    """Return why the energies of two arms or more are not compared; empty if they are."""
    if row.energy is not None:
        is_found = row.energy.shown or _margin(row.energy)
        return "" if is_found else _not_ahead(row, row.energy)
    if not row.ranking or row.grade.is_short:
        return ""
    if row.energies.has_figure:
        unknown = "energy not compared (its figures are on the page)"
        return _bounds(row) or unknown
    verdict, _, reason = _reason(row, row.energies.missing).partition(": ")
    return f"{_energy_name(row)} {verdict}{f' ({reason})' if reason else ''}"


def _clause(
    subject: Subject, row: VerdictRow, *, is_first: bool, has_energy: bool
) -> tuple[str, str]:
    """Return a workload's name, empty if the words have its unit of work, and what is found."""
    is_alone = len(subject.groups) == 1
    at = f" at {row.place}" if row.place else ""
    name = f"{row.name}{at}"
    invalid = [_name(row, bar.arm) for bar in row.rates.bars if not bar.run_count]
    if invalid and 1 < len(row.group.arms) < len(invalid) + 2:
        words = f"no valid run of {_some(invalid, 'or')}, so nothing is compared"
        return "" if is_alone else name, words
    if row.speed is None or row.energy is None:
        why = _why_no_energy(row) if has_energy else ""
        found = _figures(subject, row, is_alone=is_alone)
        return name, ", ".join(filter(None, (found, why)))
    is_told = is_first and bool(row.work) and row.speed.shown is not None
    energy = row.energy if has_energy else None
    words = _pair(row, row.speed, energy, is_told=is_told or is_alone)
    return ("", f"{words}{at}") if is_alone or is_told else (name, words)


def _pair(row: VerdictRow, speed: Answer, energy: Answer | None, *, is_told: bool) -> str:
    """Return what is found of two arms; without ``energy``, of their speed alone."""
    first, faster = speed.shown, _faster(row, speed, is_told=is_told)
    if energy is None:
        return f"{_name(row, first)} {faster}" if first is not None else _not_ahead(row, speed)
    second, thriftier = energy.shown, _thriftier(row, speed, energy)
    if first is not None and first == second:
        return f"{_name(row, first)} {faster} and {thriftier}"
    if first is not None and second is not None:
        return f"{_name(row, first)} {faster}, {_name(row, second)} {thriftier}"
    if first is not None:
        return f"{_name(row, first)} {faster}, {_not_ahead(row, energy)}"
    if second is not None:
        return f"{_name(row, second)} {thriftier}, {_not_ahead(row, speed)}"
    return _level(row, speed, energy)


def _level(row: VerdictRow, speed: Answer, energy: Answer) -> str:
    """Return what is found of two arms of which none is ahead."""
    margins = [_margin(speed), _margin(energy)]
    is_short = {_is_short(speed), _is_short(energy)}
    if all(margins) and len(is_short) == 1:
        none = _TOO_FEW if is_short.pop() else "no difference shown"
        if len(set(margins)) == 1:
            return f"{none} ({margins[0]})"
        of_energy = f"energy{_by(row)} ({margins[1]})"
        return f"{none} in speed ({margins[0]}) or {of_energy}"
    if speed.words == energy.words:
        both = f"speed and energy{_by(row)}" if speed.outcome == "same" else "speed or energy"
        return _not_ahead(row, speed).replace(speed.question, both, 1)
    return f"{_not_ahead(row, speed)}, {_not_ahead(row, energy)}"


def _faster(row: VerdictRow, speed: Answer, *, is_told: bool) -> str:
    """Return by how much an arm is ahead, with ``is_told`` in the workload's unit of work.

    Shares are compared by points, and are of no work.
    """
    if speed.row is not None and speed.row.quantity.is_share:
        return f"is {speed.ratio_text} in {speed.row.quantity.label}"
    if not is_told or not row.work:
        part = f" ({speed.part})" if speed.part else ""
        return f"is {speed.ratio_text}{part}"
    doing = f"{activity(row.phase)} " if speed.part else ""
    article = "an" if row.work[0] in "aeiou" else "a"
    return f"finishes {doing}{article} {row.work} {speed.ratio_text}"


def _thriftier(row: VerdictRow, speed: Answer, energy: Answer) -> str:
    """Return how much less energy an arm uses, of which part of the job if speed is of another."""
    per = "" if row.work else row.energies.title.partition(" per ")[2]
    part = f" ({energy.part})" if energy.part not in ("", speed.part) else ""
    return f"uses {energy.ratio_text}{f' per {per}' if per else ''}{part}{_by(row)}"


def _by(row: VerdictRow) -> str:
    """Return whose account energies are; empty for those of meters outside the drives."""
    noun = _OWN.get(row.evidence)
    if noun is None:
        return ""
    is_one = len(row.group.arms) == 1 >= row.drive_count
    return f" by the drive's own {noun}" if is_one else f" by the drives' own {noun}s"


def _energy_name(row: VerdictRow) -> str:
    """Return what the missing energy is of, where that of another device is shown."""
    return "drive energy" if row.devices else "energy"


def _not_ahead(row: VerdictRow, answer: Answer) -> str:
    """Return why no arm is ahead: no difference, no figure, or no comparison."""
    by = _by(row) if answer.question == "energy" else ""
    if answer.outcome == "missing":
        name = _energy_name(row) if answer.question == "energy" else answer.question
        return f"{name} {answer.words}"
    if answer.outcome == "same":
        return f"the same {answer.question}{by} {answer.verdict.removeprefix('same ')}"
    if margin := _margin(answer):
        if _is_short(answer):
            return f"{_TOO_FEW} in {answer.question}{by} ({margin})"
        return f"no difference in {answer.question}{by} shown ({margin})"
    if answer.question == "energy" and (bounds := _bounds(row)):
        return bounds
    return f"no verdict on {answer.question} ({_reason(row, answer.reason)})"


def _is_short(answer: Answer) -> bool:
    """Return whether only more runs are missing for a verdict."""
    row = answer.row
    if answer.outcome != "inconclusive" or row is None or row.effect is None:
        return False
    return row.call == "barred" and row.reason == row.shortage


def _margin(answer: Answer) -> str:
    """Return the largest difference that is not excluded, or how many runs are missing to say.

    It is empty for arms that are the same, and for those that are not compared.
    """
    row = answer.row
    if answer.outcome != "inconclusive" or row is None:
        return ""
    if _is_short(answer):
        return row.shortage
    if row.call != "none" or row.effect is None or answer.lower is None or answer.upper is None:
        return ""
    more, less = 1 / answer.lower - 1, answer.upper - 1
    if answer.question == "energy":
        less = 1 - 1 / answer.upper
    return f"± {row.quantity.floor_text(max(more, less, row.effect.floor))}"


def _bounds(row: VerdictRow) -> str:
    """Return that energies of arms are known as bounds, with these: ``A ≤ 31, B ≤ 30 J``."""
    bars = row.energies
    if not bars.bars or any(bar.value is not None or bar.upper is None for bar in bars.bars):
        return ""
    return f"energy known as bounds only ({_each(row, bars.bars)}{UNIT_SPACE}{bars.title})"


def _figures(subject: Subject, row: VerdictRow, *, is_alone: bool) -> str:
    """Return the figures of arms that are not compared in pairs: of one, or of three or more."""
    bars = row.rates
    if len(row.group.arms) > 1:
        if not row.ranking:
            return f"no ranking ({_reason(row, row.loads or bars.missing)})"
        return _ranked(row, has_figures=is_alone)
    arm = f"{_name(row, next(iter(row.group.arms)))} " if len(subject.arms) > 1 else ""
    if not bars.has_figure:
        return f"{arm}{_reason(row, bars.missing)}"
    (bar,) = bars.bars
    energy = row.energies
    cost = (
        f"{energy.bars[0].text}{UNIT_SPACE}{energy.title}{_by(row)}"
        if energy.has_figure
        else f"{_energy_name(row)} not measured"
    )
    runs = "one run" if bar.run_count == 1 else f"mean of {counted(bar.run_count, 'run')}"
    return f"{arm}{bar.text}{UNIT_SPACE}{bars.title}, {cost}, {runs}"


def _ranked(row: VerdictRow, *, has_figures: bool) -> str:
    """Return by how much the fastest of three arms or more is ahead, or the figures of all.

    Arms that did not alternate have no verdict: a drift would count as their difference.
    """
    best, *others = row.ranking
    records = {arm: [run.record for run in row.group.arms[arm]] for arm in row.ranking}
    bars = [bar for arm in row.ranking if (bar := row.rates.of(arm)) is not None]
    figures = f"{row.rates.title}: {_each(row, bars)}" if has_figures else ""
    if row.grade.is_short:
        gap = row.rates.bars and not all(bar.run_count for bar in row.rates.bars)
        why = "; ".join(filter(None, (_reason(row, row.grade.reason), figures)))
        return f"{'no ranking' if gap else _TOO_FEW} ({why})"
    figures = f" ({figures})" if figures else ""
    if any(first_arm(*began_s(records[best], records[arm])) for arm in others):
        return f"no verdict on arms whose runs did not alternate{figures}"
    ratios = [*speed_ratios(row)]
    short = [_name(row, arm) for arm, each, _, _ in ratios if not each.enough]
    if ratios and len(short) == len(ratios):
        return f"{_TOO_FEW}: {MINIMUM_PAIRS} alternating pairs needed{figures}"
    ahead = {arm: ratio for arm, each, ratio, _ in ratios if each.differs}
    if not ahead:
        return f"no difference in speed shown{figures}"
    than = [
        f"{ratio}{TIMES} as fast as {_name(row, arm)}"
        for arm, ratio in itertools.islice(ahead.items(), _NAMED_MAX)
    ]
    if len(ahead) > _NAMED_MAX:
        than.append(f"faster than {counted(len(ahead) - _NAMED_MAX, 'more arm')}")
    level = _some(
        [_name(row, arm) for arm, each, _, _ in ratios if each.enough and arm not in ahead]
    )
    return (
        f"{_name(row, best)} is {listed(than)}, with {bars[0].text}{UNIT_SPACE}{row.rates.title}"
        f"{f', no difference from {level} shown' if level else ''}"
        f"{f', too few runs to compare {_some(short)}' if short else ''}"
    )


def _each(row: VerdictRow, bars: Sequence[Bar]) -> str:
    return _some([f"{_name(row, bar.arm)} {bar.text}" for bar in bars])


def _some(texts: Sequence[str], word: str = "and") -> str:
    """Return texts as in a sentence, of many the first ones and a count."""
    rest = len(texts) - _NAMED_MAX
    more = [counted(rest, "more arm")] if rest > 0 else []
    return listed([*texts[:_NAMED_MAX], *more], word)


def _name(row: VerdictRow, arm: str) -> str:
    return shortened(row.names[arm], _NAME_MAX)
