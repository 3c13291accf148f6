"""Weight streaming: figures by hand, each check with its fault, and what a page says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.records import Scenario, make_run
from tests.reports.sessions import timed_span
from wattload.core.record.results import Check
from wattload.results.figures import evaluated
from wattload.results.shapes import Grid
from wattload.results.view import Arm, Shown, ShownRun
from wattload.results.weight_stream import RESULTS, STREAM, Run, StreamFacts, StreamSettings

EXPERT_BYTES = 10_000_000
VIEW = RESULTS.view


def run(**changed: Any) -> Run:
    """Return 100 tokens of 2 sequences in 20 s: 40 layers take 8 or 9 of 128 experts."""
    settings: dict[str, Any] = {
        "model": "moe", "batch": 2, "tokens": 100, "compute_us_per_layer": 1000.0,
    }  # fmt: skip
    facts: dict[str, Any] = {
        "digest": "1d" * 32, "layers": 40, "experts": 128, "experts_per_token": 8,
        "expert_bytes": EXPERT_BYTES, "memory_bytes": 100 * EXPERT_BYTES, "asked": 34_000,
        "hits": 13_600, "reads": 20_400, "read_bytes": 20_400 * EXPERT_BYTES, "slept_s": 4.1,
        "shortest_pause_s": 0.00102, "compared_bytes": 100 * EXPERT_BYTES,
        "wrong_bytes": 0, "first_wrong": None, "drive_ceiling_bytes_per_s": 14e9,
        "host_ceiling_tokens_per_s": 60.0,
    }  # fmt: skip
    own = {name: changed.pop(name) for name in settings.keys() & changed.keys()}
    record, _ = make_run(Scenario(workload="checkpoint"))
    moved = changed.pop("moved_bytes", facts["read_bytes"])
    span = timed_span(STREAM, 0, 20.0, read_bytes=moved, operations=1)
    found = StreamFacts(settings=StreamSettings(**settings | own), **facts | changed)
    named = {"name": "weight_stream", "facts": found.model_dump(mode="json")}
    of_run = {
        "spans": (span,),
        "config": {**record.config, "workload": settings | own},
        "workload": record.workload.model_copy(update=named),
    }
    return Run(record.model_copy(update=of_run), found)


def checks(found: Run) -> dict[str, Check]:
    return {check.name: check for source in RESULTS.checks for check in source(found)}


def test_figures_are_per_token_of_all_sequences() -> None:
    figures = {each.name: each.value for each in evaluated(RESULTS.figures, run())}
    assert figures == pytest.approx(
        {
            "tokens_per_s": 10,
            "read_bytes_per_token": 20_400 * EXPERT_BYTES / 200,
            "hit_fraction": 0.4,
            "ceiling_fraction": 204e9 / (20 - 4.1) / 14e9,
        },
    )
    assert VIEW.headroom is not None
    [headroom] = VIEW.headroom(run())
    assert headroom == pytest.approx(60 * 15.9 / 200)
    dense = {each.name: each for each in evaluated(RESULTS.figures, run(experts=1))}
    assert dense["hit_fraction"].value is None


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "an expert was not read": ("stream_reads", {"reads": 20_399}),
    "a hit was read all the same": ("stream_reads", {"reads": 20_401}),
    "an expert lacks a tensor": ("stream_reads", {"read_bytes": 20_400 * EXPERT_BYTES - 4096}),
    "a layer was read ahead": ("stream_schedule", {"shortest_pause_s": -0.002}),
    "a layer was read while another was computed": (
        "stream_schedule", {"shortest_pause_s": 0.0004},
    ),
    "a layer was not computed": ("stream_schedule", {"slept_s": 3.999}),
    "other bytes": ("stream_content", {"wrong_bytes": 1, "first_wrong": "experts.3.up_proj"}),
    "nothing was compared": ("stream_content", {"compared_bytes": 0}),
    "bytes were counted twice": ("counted_bytes_stream", {"moved_bytes": 408e9}),
}  # fmt: skip


@pytest.mark.parametrize(("name", "changed"), FAULTS.values(), ids=FAULTS)
def test_a_check_finds_its_fault_alone(name: str, changed: dict[str, Any]) -> None:
    assert {each.verdict for each in checks(run()).values()} == {"pass"}
    assert checks(run(shortest_pause_s=None))["stream_schedule"].verdict == "pass"
    found = checks(run(**changed))
    assert [each.name for each in found.values() if each.verdict == "fail"] == [name]
    if first := changed.get("first_wrong"):
        assert first in found[name].sentence


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"drive_ceiling_bytes_per_s": 20e9}, "limited by waiting for each layer's reads"),
        ({"drive_ceiling_bytes_per_s": 13e9}, "limited by the drive, at 98.7 % of its ceiling"),
        ({"drive_ceiling_bytes_per_s": 8e9}, "limit unknown"),
        ({"slept_s": 12.0}, "limited by computation, 60.0 % of the time"),
    ],
)
def test_a_page_says_what_limited_tokens(changed: dict[str, Any], text: str) -> None:
    found = run(**changed)
    limit = VIEW.limit([found], None) if VIEW.limit else None
    assert limit is not None
    assert limit.text.replace("\u00a0", " ").startswith(text)
    shown = ShownRun(found.record, found.facts, lambda _, phase: 300.0, lambda _: "")
    arm = Arm("", "A", "all runs", "", (shown,))
    [table] = VIEW.opening(Shown([arm], [arm]))
    assert isinstance(table, Grid)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert str(row["#J per token, in the window"]).replace("\u00a0", " ") == "1.50 J"
    assert str(row["#expert hit rate"]).replace("\u00a0", " ") == "40.0 %"
    assert VIEW.work is not None
    assert VIEW.work(shown, [STREAM]) == ("token", 200.0)
