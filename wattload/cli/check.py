"""``wattload check``: the checks of runs and their files, MLPerf's rules, energies recomputed."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from wattload.cli.escapes import printable
from wattload.core.errors import CHECK_FAILED, ConfigError, RecordError, WattloadError
from wattload.core.units import format_bytes

if TYPE_CHECKING:
    from wattload.core.mlperf.rules import Standing
    from wattload.core.record.energy import EnergyRecord, PowerSection
    from wattload.core.record.results import Check, Verdict
    from wattload.core.record.run import RunRecord
    from wattload.reports.runs.load import Run
    from wattload.results.mlperf import Judgement

_OUTCOMES = ("valid", "unproved", "failed check", "failed", "aborted")
"""What can become of a run; an unproved one lacks a mandatory check and gets no verdict."""
_BAD = frozenset(("failed check", "failed", "aborted"))
LEFT_OUT = "left out"
"""What is shown for a run folder without a usable record, and for a second record of a run."""
_ORDER = ("fail", "warn", "not_checked", "pass")
_STANDINGS = {"invalid": "red", "open": "yellow", "not_checked": "cyan", "closed": "green"}
_STYLES = {
    "fail": "bold red",
    "warn": "yellow",
    "not_checked": "cyan",
    "not_applicable": "dim",
    "pass": "green",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="a run's folder, its record.json, or a session's journal; a folder of run folders "
        "means all of them",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--edition",
        metavar="NAME",
        help="check published results of MLPerf Storage, as downloaded or imported, else runs of "
        "wattload, by the rules of v1.0, v2.0 or v3.0, or auto: of the edition that the parameters "
        "match",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="of published results, print also rules that are kept",
    )
    parser.add_argument(
        "--recompute",
        action="store_true",
        help="compute the energies again from the stored samples, and compare them with the "
        "record's; fails if they differ",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print each run's checks; returns 3 if a run failed, else 2 if one can't be read, else 0.

    The verdict of MLPerf Storage's rules is printed too, but does not affect the exit status: a run
    that is not a valid submission can still be a good run.

    Raises:
        RecordError: a path does not exist, or there is no record under any.
    """
    from wattload.cli.published import check_published, has_published, named_edition

    edition = named_edition(arguments.edition)
    published: list[Path] = []
    own: list[Path] = []
    for path in arguments.runs:
        has_runs, by_edition = has_records(path), bool(arguments.edition)
        is_published = (by_edition or not has_runs) and has_published([path])
        (published if is_published or (by_edition and not has_runs) else own).append(path)
    if published and own and arguments.json:
        raise ConfigError("--json takes runs of wattload or published results, not both at once")
    status = 0
    if published:
        status = check_published(
            published, edition, verbose=arguments.verbose, as_json=arguments.json
        )
    return max(status, _check_own(arguments, own, edition)) if own else status


def has_records(path: Path) -> bool:
    """Return whether a path has a run of wattload, finished or not."""
    from wattload.reports.runs.load import find_records

    found = find_records([path])
    return bool(found.files or found.unfinished or found.unsearched)


def _check_own(arguments: argparse.Namespace, paths: Sequence[Path], edition: str | None) -> int:
    from wattload.power.sampler.aborted_record import finish_abandoned, recorded_texts
    from wattload.reports.runs.load import find_records, load_readable
    from wattload.reports.runs.validity import checks_of_files
    from wattload.results.mlperf import judge

    found = find_records(paths)
    if not (found.files or found.unfinished or found.unsearched):
        raise next(iter(found.faults.values()))
    reasons = finish_abandoned([*paths, *found.unfinished])
    for text in recorded_texts(reasons):
        print(text, file=sys.stderr)
    again: Mapping[str, Recomputed] = {}
    if arguments.recompute:
        again = recompute(find_records(paths).files)
    loaded = load_readable(paths)
    left_out = {each.path: reasons.get(each.path) or each.reason for each in loaded.left_out}
    records = [run.record for run in loaded.runs]
    judged = [
        Judged(run, checks_of_files(run), judge(run.record, records, edition))
        for run in loaded.runs
    ]
    if arguments.json:
        documents = [_document(each, again.get(each.run.id)) for each in judged]
        documents += [
            {"path": str(path), "outcome": LEFT_OUT, "reason": reason}
            for path, reason in left_out.items()
        ]
        print(json.dumps(documents, indent=1))
    else:
        _show(judged, left_out, [again[each.run.id] for each in judged if again])
    if any(each.outcome in _BAD for each in judged) or any(each.reason for each in again.values()):
        return CHECK_FAILED
    return RecordError.exit_code if left_out else 0


Found = tuple[str, "Check"]
"""The run of a check, and the check."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, its file checks, and the judgement of MLPerf's rules if they apply."""

    run: Run
    file_checks: Sequence[Check]
    mlperf: Judgement | None

    @property
    def checks(self) -> Sequence[Check]:
        """The checks to show: of an unfinished run only failed ones, as others need its end."""
        from wattload.reports.runs.validity import counted_checks

        made = counted_checks(self.run, self.file_checks)
        return made if self.is_finished else [check for check in made if check.verdict == "fail"]

    @property
    def is_finished(self) -> bool:
        """Whether the run came to its end, whatever its checks say."""
        return self.run.record.status == "complete"

    @property
    def outcome(self) -> str:
        """One of ``_OUTCOMES``, the gravest that applies."""
        if not self.is_finished:
            return self.run.record.status
        if any(check.fails_run for check in self.checks):
            return "failed check"
        lacks = any(check.bars_verdict and not check.is_of_power for check in self.checks)
        return "unproved" if lacks else "valid"


def _document(judged: Judged, again: Recomputed | None) -> dict[str, Any]:
    run, file_checks, mlperf = judged.run, judged.file_checks, judged.mlperf
    recomputed = {} if again is None else {"recomputed": again.document}
    return {
        "run_id": run.id,
        "status": run.record.status,
        "outcome": judged.outcome,
        "checks": [check.model_dump(mode="json") for check in run.record.checks],
        "files": [check.model_dump(mode="json") for check in file_checks],
        "mlperf": None if mlperf is None else mlperf.model_dump(mode="json"),
        **recomputed,
    }


def _show(
    judged: Sequence[Judged], left_out: Mapping[Path, str], recomputed: Sequence[Recomputed]
) -> None:
    from wattload.cli.console import Console
    from wattload.reports.sections.wording import checks_tally

    # Nothing is wrapped or cut: a name or a sentence stays in one piece, for grep as well.
    console = Console(soft_wrap=True)
    for line in _unequal(judged):
        console.print(line)
    for path, reason in left_out.items():
        console.print(Text(printable(f"{path}: {LEFT_OUT}: {reason}"), style="bold red"))
    for rows in _equal(judged).values():
        console.print(_finding(rows, len(judged)))
    for line in _rules(judged):
        console.print(line)
    for result in recomputed:
        for text in result.lines():
            console.print(Text(printable(text), style="bold red" if result.reason else ""))
    if judged:
        if made := [check for each in judged for check in each.checks]:
            console.print(checks_tally(made))
        passed = sum(check.verdict == "pass" for each in judged for check in each.file_checks)
        total = sum(len(each.file_checks) for each in judged)
        console.print(f"{passed} of {total} records and traces match their seals and digests")
    counts = Counter(each.outcome for each in judged)
    parts = [f"{counts[name]} {name}" for name in _OUTCOMES if counts[name]]
    parts += [f"{len(left_out)} {LEFT_OUT}"] if left_out else []
    count = len(judged) + len(left_out)
    closing = f"{count} run{'s' if count > 1 else ''}: {', '.join(parts)}"
    is_bad = bool(left_out or _BAD & counts.keys())
    console.print(Text(closing, style="bold red" if is_bad else "bold"))


def _unequal(judged: Sequence[Judged]) -> Iterator[Text]:
    """Yield a line per run: its outcome, and what else there is to know of it alone."""
    for each in judged:
        record = each.run.record
        reason = "" if each.is_finished else f": {record.status_reason}"
        style = "bold red" if each.outcome in _BAD else "bold"
        yield Text(printable(f"{each.run.id}: {each.outcome}{reason}"), style=style)
        notes = list(_hosts(record) if each.is_finished else _progress(record))
        if each.is_finished or record.traces:  # written at a run's end
            notes += each.run.traces.notes
        for note in notes:
            yield Text(printable(f"  {note}"), style="cyan")


def _hosts(record: RunRecord) -> Iterator[str]:
    """Yield what each host did, in a run of several."""
    if len(record.hosts) > 1:
        from wattload.cli.summary import host_lines

        yield from (line.text for line in host_lines(record))


def _progress(record: RunRecord) -> Iterator[str]:
    """Yield how far a run came that did not finish."""
    from wattload.power.sampler.aborted_record import LAST_PHASES

    moved, times = Counter[str](), Counter[tuple[str, int]]()
    for span in record.spans:
        moved[span.name] += span.read_bytes + span.written_bytes
        times[span.name, span.rank] += 1
    phases = []
    for name, size in moved.items():
        count = max(own for (phase, _), own in times.items() if phase == name)
        parts = [f"{count} times"] * (count > 1) + [format_bytes(size)] * (size > 0)
        phases.append(f"{name} ({', '.join(parts)})" if parts else name)
    yield f"finished phases: {', '.join(phases) or 'none'}"
    yield from (limit for limit in record.limits if limit.startswith(LAST_PHASES))


def _equal(judged: Sequence[Judged]) -> dict[tuple[Verdict, str, str], list[Found]]:
    """Return the checks of all runs by verdict, name and sentence, worst first.

    Of several runs, checks that did not fail differ in their figures only: they are one line, as
    those of several hosts are.
    """
    from wattload.reports.runs.validity import of_hosts

    found: dict[tuple[Verdict, str, str], list[Found]] = {}
    for each in judged:
        for check in of_hosts(each.run.record, each.checks):
            is_same = check.verdict != "fail" and len(judged) > 1
            key = check.verdict, check.name, check.cause if is_same else check.sentence
            found.setdefault(key, []).append((each.run.id, check))
    return dict(sorted(found.items(), key=lambda item: _ORDER.index(item[0][0])))


def _finding(rows: Sequence[Found], run_count: int) -> Text:
    """Return the line of equal checks: verdict, name, who has it, and the sentence."""
    _, check = rows[0]
    runs = {run_id for run_id, _ in rows}
    which = ""
    if run_count > 1:
        which = f" ({'all' if len(runs) == run_count else len(runs)} runs)"
        which = f" ({rows[0][0]})" if len(runs) == 1 else which
    is_passed = check.verdict == "pass" and run_count > 1
    is_example = len({each.sentence for _, each in rows}) > 1
    example = "e.g. " if is_example and not check.sentence.startswith("e.g. ") else ""
    sentence = "" if is_passed else f": {example}{check.sentence}"
    word = "not_applicable" if check.cause else check.verdict
    return _line(word, _STYLES, f"{check.name}{which}{sentence}")


def _line(word: str, styles: Mapping[str, str], text: str) -> Text:
    line = Text(f"{word.replace('_', ' '):<15}", style=styles[word])
    return line.append(printable(text), style="not bold default")


def _rules(judged: Sequence[Judged]) -> Iterator[Text]:
    """Yield the findings of MLPerf's rules, each once, with the runs that it is about."""
    ruled = [(each.run.id, each.mlperf) for each in judged if each.mlperf and each.is_finished]
    if not ruled:
        return
    standings = Counter(judgement.standing.replace("_", " ") for _, judgement in ruled)
    parts = ", ".join(
        name if len(ruled) == 1 else f"{name} ({count} runs)" for name, count in standings.items()
    )
    names = " and ".join(dict.fromkeys(judgement.edition for _, judgement in ruled))
    yield Text(f"MLPerf Storage's rules for this workload, {names}: {parts}")
    found: dict[tuple[Standing, str, str], list[tuple[str, str]]] = {}
    for run_id, judgement in ruled:
        for finding in judgement.findings:
            said = finding.sentence if finding.standing == "invalid" else ""
            key = (finding.standing, finding.rule, said)
            found.setdefault(key, []).append((run_id, finding.sentence))
    for (standing, rule, _), rows in found.items():
        run_id, sentence = rows[0]
        which = f" ({run_id})" if len(rows) == 1 else f" ({len(rows)} runs)"
        which = "" if len(rows) == len(ruled) else which
        sentence = f"e.g. {sentence}" if len({said for _, said in rows}) > 1 else sentence
        yield _line(standing, _STANDINGS, f"{rule}{which}: {sentence}")


ROUNDING = 1e-6
"""A share of a figure that another processor or library may round differently."""

RECOMPUTED = ("choice", "idle_s", "rest_s", "sources", "idle", "throttling", "written")
"""The parts of the section that follow from the samples, besides the energies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The energy of one phase and device by one source, stored and recomputed, if there is one."""

    stored: EnergyRecord | None
    again: EnergyRecord | None

    @property
    def either(self) -> EnergyRecord:
        """One of both, for what they have in common."""
        found = self.again or self.stored
        assert found is not None
        return found

    @property
    def difference(self) -> float | None:
        """The change as a share of the stored energy, ``None`` if one of both is missing."""
        stored_j = None if self.stored is None else self.stored.energy_j
        again_j = None if self.again is None else self.again.energy_j
        if stored_j is None or again_j is None or stored_j == 0:
            return None
        return again_j / stored_j - 1

    @property
    def differing(self) -> tuple[str, ...]:
        """The names of the figures that differ by more than rounding; none if one of both lacks."""
        if self.stored is None or self.again is None:
            return ()
        # Tails and parts of U are small differences of such energies.
        slack_j, seconds = ROUNDING * abs(self.again.energy_j or 0.0), self.again.seconds
        slacks = {"_j": slack_j, "_w": slack_j / seconds if seconds > 0 else 0.0}
        one, other = (each.model_dump(mode="json") for each in (self.stored, self.again))
        return tuple(dict.fromkeys(_differing(one, other, slacks)))

    @property
    def is_same(self) -> bool:
        """Whether both state the same, up to rounding."""
        return self.stored is not None and self.again is not None and not self.differing


def _differing(
    one: object, other: object, slacks: Mapping[str, float], name: str = ""
) -> Iterator[str]:
    """Yield the names of the parts of two JSON values that differ, without indices.

    Numbers may differ by rounding, or by a slack for the end of a part of their name: the unit.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        for key in dict.fromkeys([*one, *other]):
            path = f"{name}.{key}" if name else key
            yield from _differing(one.get(key), other.get(key), slacks, path)
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for each, again in zip(one, other, strict=True):
            yield from _differing(each, again, slacks, name)
    elif isinstance(one, float) and isinstance(other, float):
        units = (unit for unit in slacks if any(part.endswith(unit) for part in name.split(".")))
        slack = slacks.get(next(units, ""), 0.0)
        if abs(one - other) > max(slack, ROUNDING * abs(other)):
            yield name
    # Sentences may name a figure, which is rounded.
    elif one != other and not (one and other and {"missing", "remarks"} & set(name.split("."))):
        yield name


def _section_differs(old: PowerSection, new: PowerSection) -> tuple[str, ...]:
    """Return what else differs that follows from the samples: sensors and idle power."""
    one, other = (power.model_dump(mode="json", include=set(RECOMPUTED)) for power in (old, new))
    return tuple(dict.fromkeys(_differing(one, other, {"_w": ROUNDING, "_s": ROUNDING})))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """The energies of one run recomputed, or ``reason``: why not, or what contradicts them.

    ``others`` are the names of what differs besides energies.
    """

    run_id: str
    pairs: Sequence[Pair] = ()
    others: Sequence[str] = ()
    reason: str = ""

    @property
    def document(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "others": list(self.others),
            "energies": [_pair_document(pair) for pair in self.pairs],
        }

    def lines(self) -> Iterator[str]:
        """Yield what to print: only those energies that differ."""
        if self.reason and not self.pairs:
            yield f"{self.run_id}: energies not recomputed: {self.reason}"
            return
        changed = [pair for pair in self.pairs if not pair.is_same]
        yield (
            f"{self.run_id}: {len(self.pairs)} energies recomputed from the samples, "
            f"{len(changed)} differ"
        )
        for pair in changed:
            each = pair.either
            yield (
                f"  {each.phase}, {each.device} by {each.source}: {_text(pair.stored)} -> "
                f"{_text(pair.again)}{_change(pair)}; differs in {', '.join(pair.differing)}"
            )
        if self.others:
            yield f"  also: {', '.join(self.others)}"
        if self.reason:
            yield f"  {self.reason}"


def _pair_document(pair: Pair) -> dict[str, Any]:
    each = pair.either
    figures = (
        *("energy_j", "uncertainty_j", "tail_j", "work_uncertainty_j"),
        *("lower_j", "upper_j", "chosen"),
    )
    return {
        "host": each.host,
        "phase": each.phase,
        "device": each.device,
        "source": each.source,
        "stored": pair.stored and pair.stored.model_dump(mode="json", include=set(figures)),
        "recomputed": pair.again and pair.again.model_dump(mode="json", include=set(figures)),
        "difference": pair.difference,
        "is_same": pair.is_same,
        "differing": list(pair.differing),
    }


def _text(energy: EnergyRecord | None) -> str:
    if energy is None:
        return "none"
    if energy.energy_j is not None:
        u_j = energy.uncertainty_j
        text = f"{energy.energy_j:.6g}" + ("" if u_j is None else f" ± {u_j:.2g}") + " J"
    elif energy.upper_j is not None:
        text = f"{energy.lower_j or 0:.6g} to {energy.upper_j:.6g} J"
    else:
        text = f"none ({energy.missing.get('energy_j', 'no reason is stored')})"
    return text + (", chosen" if energy.chosen else "")


def _change(pair: Pair) -> str:
    return "" if pair.difference is None else f" ({100 * pair.difference:+.3f} %)"


def recompute(files: Sequence[Path]) -> dict[str, Recomputed]:
    """Return each readable run's energies recomputed, by its id."""
    from wattload.core.record.file import read_record

    found: dict[str, Recomputed] = {}
    for file in files:
        try:
            record = read_record(file)
        except RecordError:
            continue  # left out, with this reason, by the checks
        if record.run_id not in found:  # a second record of a run is left out
            found[record.run_id] = _of_run(record, file.parent)
    return found


def _of_run(record: RunRecord, folder: Path) -> Recomputed:
    from wattload.run.energy import recomputed_section

    try:
        power = recomputed_section(record, folder)
    except WattloadError as error:
        return Recomputed(run_id=record.run_id, reason=str(error))
    pairs, others = _pairs(record.power, power), _section_differs(record.power, power)
    is_same = not others and all(pair.is_same for pair in pairs)
    reason = (
        ""
        if is_same
        else "The stored energies are not those of the samples: the record was changed, or made by "
        "another edition of this version."
    )
    return Recomputed(run_id=record.run_id, pairs=pairs, others=others, reason=reason)


def _pairs(old: PowerSection, new: PowerSection) -> list[Pair]:
    by_key = [
        {
            (each.host, each.phase, each.device, each.source, each.start_ns, each.end_ns): each
            for each in (*power.energy, *power.whole_run)
        }
        for power in (old, new)
    ]
    return [
        Pair(stored=by_key[0].get(key), again=by_key[1].get(key))
        for key in dict.fromkeys([*by_key[0], *by_key[1]])
    ]
