"""Whatever runs there are, every form of a report says what it can and why it can't say more."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.reports.sessions import EMPTY, run, session
from wattload.reports.render.json_export import json_report
from wattload.reports.render.text_export import csv_report, markdown_report, ratios_report
from wattload.reports.runs.load import Run
from wattload.reports.stats.subject import make_subject
from wattload.reports.stats.summary import first_screen

REAL: dict[str, Any] = {"power": "measured", "virtual": False}
WORKLOADS = ("unet3d", "checkpoint", "dlrm")


def broken(name: str, label: str = "A") -> Run:
    """Return a run that failed before it had found out anything."""
    nothing = ("spans", "metrics", "counters", "checks", "hosts", "targets")
    update: dict[str, Any] = dict.fromkeys((*nothing, "controllers", "latencies"), ())
    update |= {"status": "failed", "status_reason": "died"}
    return Run(record=run(name, label=label).record.model_copy(update=update), traces=EMPTY)


def with_rates(runs: Sequence[Run], rates: Sequence[float | None]) -> list[Run]:
    """Return the runs with these headline figures."""
    found = []
    for each, rate in zip(runs, rates, strict=True):
        metrics = tuple(
            metric.model_copy(
                update={"value": rate, "missing": {} if rate is not None else {"value": "lost"}}
            )
            if metric.headline
            else metric
            for metric in each.record.metrics
        )
        record = each.record.model_copy(update={"metrics": metrics})
        found.append(Run(record=record, traces=EMPTY))
    return found


PAIRS = session({"A": [1e9] * 6, "B": [2e9] * 6}, **REAL)
CASES: dict[str, Callable[[], Sequence[Run]]] = {
    "one run": lambda: [run("r1")],
    "one run that failed early": lambda: [broken("r1")],
    "only failed runs": lambda: [broken("r1"), broken("r2", "B")],
    "a valid arm and a failed one": lambda: [run("r1"), broken("r2", "B")],
    "a host per run": lambda: [run(f"r{i}", label="AB"[i % 2], host=f"h{i}") for i in range(12)],
    "thirty arms": lambda: [
        run(f"{name}{index}", label=f"arm {index}", workload=name)
        for index in range(30)
        for name in WORKLOADS
    ],
    "tiny and huge": lambda: with_rates(PAIRS, [1e-9] * 6 + [1e15] * 6),
    "zeros": lambda: with_rates(PAIRS, [0.0] * 12),
    "negative": lambda: with_rates(PAIRS, [-1.0] * 12),
    "no figure": lambda: with_rates(PAIRS, [None] * 12),
    "labels of 200 characters": lambda: session(
        {"שלום עולם " + "ש" * 190: [1e9] * 6, "<b>x|y</b>" + "日" * 190: [2e9] * 6}, **REAL
    ),
    "no workload in common": lambda: [run("a"), run("b", label="B", workload="dlrm")],
}


@pytest.mark.parametrize("by", ["label", "target", "power_state"])
@pytest.mark.parametrize("case", CASES)
def test_every_form_is_made(case: str, by: str) -> None:
    subject = make_subject(CASES[case](), by)
    text = markdown_report(subject)
    assert text.count("\n") <= 60
    assert "<b>" not in re.sub(r"\\<", "", text)
    document = json.loads(json_report(subject))
    assert len(document["first_screen"]["rows"]) == len(first_screen(subject).rows)
    known = {run["run_id"] for run in document["runs"]}
    assert {row["run_id"] for row in csv.DictReader(io.StringIO(csv_report(subject)))} <= known
    assert ratios_report(subject)[:9] in ("", "workload,")


def test_nothing_is_won_without_valid_runs() -> None:
    for case in ("only failed runs", "a valid arm and a failed one", "zeros", "no figure"):
        for row in first_screen(make_subject(CASES[case]())).rows:
            assert row.speed is None or row.speed.winner is None
            assert row.grade.word not in ("high", "medium")
