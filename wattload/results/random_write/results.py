"""The results of random writes."""

from __future__ import annotations

from wattload.core.record.results import Verdict
from wattload.core.steady import REST_S
from wattload.core.units import format_seconds
from wattload.results.checks import CheckFigures, CheckRule, Observed, counted_bytes
from wattload.results.random_write.facts import PHASE, ROUNDS, SECONDS, Run, WriteFacts
from wattload.results.random_write.figures import FIGURES
from wattload.results.random_write.view import VIEW
from wattload.results.registry import Results


def _had_no_rest(figures: CheckFigures) -> Verdict:
    rest_s = figures["rest_s"]
    if rest_s is None:
        return "not_checked"
    return "pass" if float(rest_s) <= REST_S else "warn"


def _rested(figures: CheckFigures, verdict: Verdict) -> str:
    if verdict == "not_checked":
        return "The range was not prepared by wattload, so its state is unknown."
    rest = format_seconds(float(figures["rest_s"] or 0))
    ending = ": the drive may have collected garbage meanwhile." if verdict == "warn" else "."
    return f"The random writes began {rest} after the range was last written{ending}"


def _written_bytes(run: Run) -> int:
    return run.facts.passes[-1].written_bytes


RESULTS = Results(
    name="random_write",
    facts=WriteFacts,
    figures=FIGURES,
    checks=(
        counted_bytes(PHASE, "written", _written_bytes),
        CheckRule[WriteFacts](
            name="preparation_rest",
            fault="the drive had time to collect garbage after its preparation",
            figures=lambda run: {"rest_s": run.facts.rest_s},
            judge=_had_no_rest,
            sentence=_rested,
        ),
    ),
    observed=(
        Observed[WriteFacts](
            name="written_blocks", fault="the drive returned other blocks than were written"
        ),
    ),
    tables=(SECONDS, ROUNDS),
    view=VIEW,
)
