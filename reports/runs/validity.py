"""Whether a run, and its energy, are compared as valid.

The seal of a record and the digests of its traces are checked before a page is drawn, in addition
to the record's own checks. They detect files that were damaged, or edited by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from wattload.core.record.file import SealState
from wattload.core.record.results import Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.reports.runs.hosts import all_hosts_text, names_text
from wattload.reports.runs.load import Run

TRACES = ("throughput", "power")
"""The traces that every complete run writes."""

SEAL_CHECK = "seal"
_TRACE_DIGEST = "trace_digest_"
_SEALS: Mapping[SealState, tuple[Verdict, str]] = {
    "holds": ("pass", "Its seal matches its content."),
    "broken": ("fail", "The record was edited after the run: its seal does not match its content."),
}


def checks_of_files(run: Run) -> tuple[Check, ...]:
    """Return the checks of a run's files: its seal, and the digest of each trace."""
    verdict, sentence = _SEALS[run.seal]
    return (Check(name=SEAL_CHECK, verdict=verdict, sentence=sentence), *_traces(run))


def _traces(run: Run) -> Iterator[Check]:
    """Compare each trace's file with the digest in the record; a missing file proves nothing."""
    for file in run.record.traces:
        name = f"{_TRACE_DIGEST}{file.name}"
        digest = run.traces.digests.get(file.name)
        if digest is None:
            yield Check(
                name=name,
                verdict="not_checked",
                sentence=f"{file.file} is missing or unreadable, so the record's figures can't be "
                "compared with it.",
                mandatory=file.name in TRACES,
            )
            continue
        same = digest == file.sha256
        yield Check(
            name=name,
            verdict="pass" if same else "fail",
            sentence=f"{file.file} has the recorded digest."
            if same
            else f"{file.file} was damaged or changed after the run: its digest differs.",
            figures={"stated": file.sha256[:16], "found": digest[:16]},
        )
    named = {file.name for file in run.record.traces}
    for name in TRACES:
        if run.sha256 and run.record.status == "complete" and name not in named:
            yield Check(
                name=f"{_TRACE_DIGEST}{name}",
                verdict="not_checked",
                sentence=f"The record names no {name} trace, which every complete run writes.",
                mandatory=True,
            )


def counted_checks(run: Run, of_files: Sequence[Check]) -> list[Check]:
    """Return the checks that counts are of: a run's own, and its files' that do not pass."""
    return [*run.record.checks, *(check for check in of_files if check.verdict != "pass")]


def split_name(record: RunRecord, check: str) -> tuple[str, str]:
    """Return the name of a check without its host and that one's drive, and the host.

    The host is empty, and the name is whole, in a run of one host and for a check of the run.
    """
    hosts = [each.facts.name for each in record.hosts] if len(record.hosts) > 1 else []
    host = next((host for host in hosts if check.endswith(f"_{host}")), "")
    if not host:
        return check, ""
    name = check.removesuffix(f"_{host}")
    drives = {each.facts.serial for each in record.controllers if each.facts.host == host}
    drives |= {each.device for each in record.power.energy if each.host == host}
    for drive in drives:
        name = f"{name}_".replace(f"_{drive}_", "_").removesuffix("_")
    return name, host


def of_hosts(record: RunRecord, checks: Iterable[Check]) -> list[Check]:
    """Return checks, those of several hosts as one, with one's sentence if their sentences differ.

    Its name ends with the hosts: ``short_run_read (all 3 hosts)``.
    """
    found: dict[tuple[str, Verdict, str], dict[str, list[Check]]] = {}
    for check in checks:
        name, host = split_name(record, check.name)
        of_name = found.setdefault((name, check.verdict, check.cause), {})
        of_name.setdefault(host, []).append(check)
    joined = []
    for (name, *_), own in found.items():
        same = [check for of_host in own.values() for check in of_host]
        if len(own) > 1:
            is_all = len(own) == len(record.hosts)
            hosts = all_hosts_text(len(own)) if is_all else names_text([*own])
            is_example = len({check.sentence for check in same}) > 1
            example = f"e.g. on {next(iter(own))}: " if is_example else ""
            changes = {"name": f"{name} ({hosts})", "sentence": f"{example}{same[0].sentence}"}
            same = [same[0].model_copy(update=changes)]
        joined += same
    return joined


WARM_UP = "it is a warm-up run"
_ENDED = {"failed": "the run failed", "aborted": "the run was aborted"}
_DONE = {"fail": "failed", "not_checked": "was not checked"}


def ending(record: RunRecord) -> tuple[str, str]:
    """Return how a run ended that is not complete, such as ``the run failed``, and why."""
    return _ENDED[record.status], record.status_reason or "no reason recorded"


def faults(run: Run, of_files: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run is not compared as valid; empty for a valid one."""
    record, found = run.record, []
    if record.comparison.warm_up:
        found.append(WARM_UP)
    if record.status != "complete":
        how, why = ending(record)
        found.append(f"{how}: {why}")
    failed = (check for check in record.checks if check.fails_run)
    found += [
        f"the check {check.name} failed: {check.sentence}" for check in of_hosts(record, failed)
    ]
    found += [_broken(check) for check in of_files if check.verdict == "fail"]
    missing = (
        check
        for check in (*record.checks, *of_files)
        if check.bars_verdict and not check.is_of_power
    )
    found += [
        f"the mandatory check {check.name} is missing: {check.sentence}"
        for check in of_hosts(record, missing)
    ]
    return tuple(found)


def energy_faults(run: Run, of_files: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run's energy is not compared, in addition to the faults of the run."""
    found = (check for check in (*run.record.checks, *of_files) if check.bars_energy)
    return tuple(
        f"the check {check.name} {_DONE[check.verdict]}: {check.sentence}"
        for check in of_hosts(run.record, found)
    )


def _broken(check: Check) -> str:
    if check.name == SEAL_CHECK:
        return f"it was edited: {check.sentence}"
    return f"its trace {check.sentence}"
