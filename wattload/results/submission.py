"""How runs of ours stand as a submission to MLPerf Storage: by its rules, and by what we check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from wattload.core.mlperf.edition import Edition
from wattload.core.mlperf.formulas import UnknownError
from wattload.core.mlperf.published import AnyFacts
from wattload.core.mlperf.rules import Answer
from wattload.core.record.run import RunRecord
from wattload.results.facts import F, Run


@dataclass(frozen=True, slots=True)
class Own(Generic[F]):
    """A run, the comparable runs, itself included, and the edition it is held against."""

    run: Run[F]
    runs: Sequence[Run[F]]
    edition: Edition

    @property
    def record(self) -> RunRecord:
        return self.run.record

    def setting(self, group: str, name: str) -> Any:  # noqa: ANN401 - whatever is configured
        """Return a setting; raises ``UnknownError`` if the record has none of the name."""
        settings = self.record.config.get(group)
        if not isinstance(settings, Mapping) or name not in settings:
            raise UnknownError(f"the record has no {group}.{name}")
        return settings[name]

    def number(self, group: str, name: str) -> float:
        """Return a setting that is a number; raises ``UnknownError`` if there is none."""
        found = self.setting(group, name)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise UnknownError(f"{group}.{name} is no number")
        return found


@dataclass(frozen=True, kw_only=True)
class Submission(Generic[F]):
    """How a workload's runs are judged.

    ``facts`` returns those of a run in the form of published ones. ``rules`` are in the order of
    their findings: a function of the run, or ``None`` for the rule that published sets have.
    """

    facts: Callable[[Run[F]], AnyFacts]
    rules: Mapping[str, Callable[[Own[F]], Answer] | None]


def faults(record: RunRecord) -> list[str]:
    """Return why a run's figures can't be trusted: its status and failed checks, power excepted."""
    found = [] if record.status == "complete" else [f"it is {record.status}"]
    return found + [
        f"{check.name} failed"
        for check in record.checks
        if check.verdict == "fail" and not check.is_of_power
    ]


def sound_run(own: Own[F]) -> Answer:
    bad = faults(own.record)
    figures = {"checks": len(own.record.checks), "faults": len(bad)}
    if bad:
        return "invalid", f"The run's figures can't be trusted: {', '.join(bad)}.", figures
    return "closed", "The run is complete and none of its checks failed.", figures


def checked(name: str) -> Callable[[Own[F]], Answer]:
    """Return the rule that one of the run's own checks decides."""

    def rule(own: Own[F]) -> Answer:
        check = next((c for c in own.record.checks if c.name.startswith(name)), None)
        if check is None or check.verdict == "not_checked":
            raise UnknownError(check.sentence if check else f"the record has no check {name}")
        return "closed" if check.verdict == "pass" else "invalid", check.sentence, check.figures

    return rule
