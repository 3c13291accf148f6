"""How the figures of a page are made and compared, from what, and how to make a run again."""

from __future__ import annotations

import json
import shlex

from wattload.core.checks.conditions import LONGEST_GAP_S
from wattload.core.record.file import RECORD_FILE, SEAL_COMMAND, SealState
from wattload.core.record.run import ConfigFile, RunRecord
from wattload.core.units import Unit
from wattload.reports.blocks import (
    Block,
    Cell,
    Code,
    Facts,
    Fold,
    Link,
    Paragraph,
    Section,
    Table,
    Tone,
    Words,
    columns,
    row,
)
from wattload.reports.charts.plot import MARKS_MAX
from wattload.reports.runs.energy import EVIDENCE_TEXT, SOFT_BOUND
from wattload.reports.runs.load import DETAILED_RUNS, INPUTS_COMMAND, Run, inputs_digest
from wattload.reports.stats.conditions import BYTES_TOLERANCE
from wattload.reports.stats.effects import FLOOR, MARGIN, MINIMUM_PAIRS, MINIMUM_RUNS, REACH
from wattload.reports.stats.intervals import BOOTSTRAP_RUNS, RESAMPLES, SEED
from wattload.reports.stats.subject import Subject
from wattload.results.quantity import MISSING, counted, number, quantity, whole

_SEALS: dict[SealState, tuple[str, Tone]] = {
    "holds": ("seal matches the content", "good"),
    "broken": ("edited after the run", "bad"),
}
_DATA_LOCATION = (
    "The page's source has all results as JSON in SI base units, in the element wattload-data."
)
_SEAL_COUNTS: dict[SealState, str] = {
    "holds": "with a matching seal",
    "broken": "edited after the run",
}


def inputs_section(subject: Subject) -> Section:
    """Return the digests of the records, how to check them, and where the page's data are."""
    masked = any(run.masked for run in subject.runs)
    digest = inputs_digest(subject.runs)
    of = "masked records' JSON, not of their files" if masked else "files record.json"
    is_long = len(subject.runs) > DETAILED_RUNS
    listed_runs = [run for run in subject.runs if not is_long or run.seal == "broken"]
    table = Table(
        columns=columns("run", "SHA-256", "seal"),
        rows=[_row(run) for run in listed_runs],
        caption="Records that this page was made from"
        if len(listed_runs) == len(subject.runs)
        else "Records that were edited after the run",
        note=(
            "A seal detects accidental edits; it is not a signature, because anyone who edits a "
            "record can seal it again. An edited record is shown, and compared only with --force."
        ),
    )
    blocks: list[Block] = [
        Paragraph(
            f"{counted(len(subject.runs), 'record')}: {_seals(subject)}. The digests are of the "
            f"{of}. {_DATA_LOCATION}"
        ),
        Code(digest, "SHA-256 over the sorted digests of all records"),
    ]
    details: list[Block] = [table] if listed_runs else []
    if not masked:
        checks = f"{INPUTS_COMMAND}\n{SEAL_COMMAND}"
        caption = "Commands to check the digest of a folder of runs, and the seal in a run's folder"
        details.append(Code(checks, caption))
    if details:
        blocks.append(Fold("Digests and seals", details, data=True))
    return Section(anchor="inputs", title="Inputs", blocks=blocks, remark=_seals(subject))


def _seals(subject: Subject) -> str:
    """Return how many records have a seal that fits, or a broken one."""
    counts = {state: sum(run.seal == state for run in subject.runs) for state in _SEALS}
    return ", ".join(f"{count} {_SEAL_COUNTS[state]}" for state, count in counts.items() if count)


def _row(run: Run) -> tuple[Cell, ...]:
    words, tone = _SEALS[run.seal]
    return row(run.id, run.sha256 or MISSING, Cell("", tone, words))


def reproduce_blocks(run: Run) -> list[Block]:
    """Return the command that reproduces a run, its configuration, and where its record is."""
    record = run.record
    return [
        Code(shlex.join(record.command), "The command that reproduces this run"),
        Facts([*_facts(record), ("all its facts", _record_words(run))]),
        Fold(
            "Configuration",
            [Code(json.dumps(record.config, indent=2, ensure_ascii=False))],
            data=True,
        ),
    ]


def _record_words(run: Run) -> Words:
    """Return where a run's record is, with a link from a page that lies beside the runs."""
    name = Link(RECORD_FILE, file=run.link) if run.link else RECORD_FILE
    return [name, " in the run's folder; its SHA-256 is under ", Link("Inputs", "inputs")]


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    software = record.software
    commit = (software.git_commit or "")[:12] or software.missing["git_commit"]
    dirty = " with changes not committed" if software.git_dirty else ""
    facts = [
        ("run", record.run_id),
        ("wattload", f"{software.wattload}, commit {commit}{dirty}"),
        ("Python", software.python),
        ("libraries", ", ".join(f"{name} {is_}" for name, is_ in software.libraries.items())),
        (
            "session, block, order",
            f"{record.comparison.session_id}, {record.comparison.block}, {record.comparison.order}",
        ),
    ]
    if record.config_files:
        facts.append(("settings from files", "; ".join(map(_file_text, record.config_files))))
    image = software.image
    if image.id is not None:
        facts.append(("image", f"{image.id} ({image.evidence})"))
    elif any(host.facts.container not in (None, "none") for host in record.hosts):
        facts.append(("image", image.missing["id"]))
    if (data := record.workload.data) is not None:
        made = "reused" if data.reused else "made by this run"
        facts.append(
            (
                "data",
                f"{data.key}: {counted(data.file_count, 'file')}, "
                f"{quantity(data.data_bytes, Unit.BYTES)}, {made}",
            )
        )
    return facts


def _file_text(file: ConfigFile) -> str:
    instead = " instead of wattload's own" if file.replaces else ""
    return f"{file.path}{instead} (SHA-256 {file.sha256})"


def method_section(subject: Subject) -> Section | None:
    """Return what each kind of number means and where it comes from."""
    evidence = "; ".join(
        f"{name.replace('_', ' ')}: {words}" for name, words in EVIDENCE_TEXT.items()
    )
    pairs = [
        ("bytes", "Counted as they move; nominal sizes never enter a rate. GB is 10⁹ bytes."),
        ("rate", "All bytes ÷ all time of the phase, never a mean of rates."),
        (
            "time",
            "CLOCK_MONOTONIC; a phase lasts from first start to last end, of several hosts on the "
            "clock of the first.",
        ),
        (
            "energy",
            "Energy in the window: power integrated over the phase, corrected for the meter's "
            "delay. Energy for the work, the headline, adds the tail: energy above idle power in "
            "the rest after the job. Net: less idle power times seconds. ±: k = 2. The energy of "
            "several drives is their sum, and unknown if that of one is.",
        ),
        (
            "MB/s per W",
            "Bytes ÷ energy over the same window. This is rate ÷ mean power, unless hosts end "
            "apart: the mean powers of drives add up, each while its host was in the phase.",
        ),
        (
            "marks",
            f"A chart draws at most {MARKS_MAX} runs of an arm, chosen evenly by rank, with the "
            "lowest and the highest. The table under it lists every run.",
        ),
        ("missing", "A dash means unknown, never zero; the reason is given with it."),
        ("evidence", f"{evidence}."),
        (
            "bounds, ≤",
            "From the drive's power state table or from declared watts: an interval, or a maximum "
            f"alone. {SOFT_BOUND}. Declared watts may be entirely wrong. Nothing is ranked by "
            "bounds, or by declared, simulated or replayed figures.",
        ),
        (
            "checks",
            "Each compares two independent counters. A run that fails a check is shown but not "
            "compared, unless forced with --force. A sensor other than declared excludes no run: "
            "energies allow for it, or are not compared.",
        ),
        (
            "files",
            "Before this page was drawn, every record was compared with its seal, and every trace "
            "with the digest in its record.",
        ),
    ]
    rules = comparison_rules() if subject.compares else []
    blocks: list[Block] = [*rules, Facts(pairs, "prose")]
    return Section(anchor="method", title="Method", blocks=blocks)


def comparison_rules() -> list[Block]:
    """Return how figures are compared and when an arm is better, with the details in a fold."""
    rules = Fold("The rules in full", [Paragraph(text) for text in _rules()])
    return [Paragraph(_summary()), rules]


def _summary() -> str:
    return (
        "The unit is the run. An arm's figure is the geometric mean of its valid runs. A ratio is "
        "of these means, at least 1, in favour of the arm it names, with its 95 % interval. A "
        "verdict needs at least "
        f"{MINIMUM_RUNS} valid runs per arm, or {MINIMUM_PAIRS} pairs of alternating runs. An arm "
        "is better under two conditions. The interval excludes 1 after Holm's correction for all "
        f"verdicts of the workload. The effect exceeds {_percent(FLOOR)}, the noise floor and, for "
        "energy, the uncertainty of the sensors."
    )


def _rules() -> tuple[str, ...]:
    """Return when runs are compared, how their interval is made, and what a verdict needs."""
    gap, margin = whole(LONGEST_GAP_S), _percent(MARGIN)
    return (
        "Valid runs: complete runs that no check excludes, without warm-ups. There is no verdict "
        "if work, data or settings of the arms differ, if runs of one arm differ in drive, power "
        "state, loader, host or data set, or, on seconds and joules, if the bytes of two runs are "
        f"more than {_percent(BYTES_TOLERANCE)} apart. No run is dropped for its value.",
        "Ratio: of geometric means, or for alternating runs the geometric mean of the pairs' "
        "ratios. The ratio of medians is printed if it differs; no verdict contradicts it.",
        f"Interval: Student's t on the logs of the pairs' ratios with at least {MINIMUM_PAIRS} "
        "pairs, the fewest that can reach p < 0.05 by flipping signs; otherwise Welch's t on the "
        f"logs of the runs, with at least {MINIMUM_RUNS} per arm. Runs more than {gap} s apart, "
        f"cooling aside, are not a pair. With at least {BOOTSTRAP_RUNS} pairs or runs per arm a "
        f"BCa bootstrap ({whole(RESAMPLES)} resamples, seed {SEED}) is added. The printed interval "
        "then spans both: from the lower of the lower ends to the higher of the upper ends. A "
        "verdict needs both.",
        "Several verdicts: figures that answer one question, such as rate and time, get one "
        "verdict. All questions of a workload, at all points of its sweep, are one family; Holm's "
        "step-down keeps its chance of a false verdict at 5 % if the arms alternated. "
        "Sweeps are compared point by point; the median of the points' ratios comes first. "
        "Fix the number of runs before the first.",
        f"Noise floor: the effect must exceed {_percent(FLOOR)}, the difference between an arm's "
        "earlier and later runs, and the difference of a setting from itself (interleave=aa). Arms "
        "that did not alternate may have run one after the other: the floor then includes their "
        f"drift, extrapolated over at most {number(REACH, 1)} times the duration of an arm.",
        "Energy: more runs do not make a sensor more accurate. The interval is widened by the "
        "stated uncertainties of both arms (k = 2), in quadrature, without what they share: the "
        "gain of one meter cancels in a ratio; an offset does not. Without a stated uncertainty, "
        "or with different evidence, there is no verdict. Energy for the work includes the tail: "
        "energy above idle power in the rest after a job. It is compared after equal rests, by "
        "meters that were all calibrated or all not; otherwise energy in the window is. There is "
        "no verdict if the two measurands give different ones.",
        f"Same: within {margin}, only if the whole interval is between "
        f"{number(1 / (1 + MARGIN), 3)} and {number(1 + MARGIN, 3)}, and the noise floor too.",
        "Spread: the CV of an arm's runs is steady up to 2 %, noted up to 5 %, noisy above that "
        "(run more) and unstable above 10 %.",
    )


def _percent(share: float) -> str:
    return f"{number(share * 100, 1)} %"
