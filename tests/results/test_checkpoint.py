"""Figures and checks of checkpoints: of several ranks and hosts, and of drains during training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.records import Scenario, make_run
from wattload.core.record.host import ClockOffset
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.run import RunRecord
from wattload.results.reading import checks_of, metrics_of

S = 1_000_000_000


def span(phase: str, rank: int, host: str, window_s: tuple[float, float], moved: int) -> PhaseSpan:
    start_ns, end_ns = (round(at * S) for at in window_s)
    return PhaseSpan(
        name=phase,
        parent=None,
        host=host,
        rank=rank,
        timed=True,
        start_ns=start_ns,
        end_ns=end_ns,
        read_bytes=moved if phase == "read" else 0,
        written_bytes=moved if phase == "write" else 0,
        operations=1,
        cpu_s=0.0,
    )


def record_of(
    spans: Sequence[PhaseSpan],
    of_ranks: Sequence[dict[str, Any]],
    settings: dict[str, Any] | None = None,
    **facts: Any,
) -> RunRecord:
    """Return a record of these spans; ranks are like those of a run of one checkpoint."""
    record, _ = make_run(Scenario(workload="checkpoint"))
    (usual,) = record.workload.facts["ranks"]
    own = [{**usual, **rank} for rank in of_ranks]
    given = {**record.workload.facts, "ranks": own, "rank_bytes": [1000] * len(own), **facts}
    return record.model_copy(
        update={
            "spans": tuple(spans),
            "config": {"workload": {**record.config["workload"], **(settings or {})}},
            "workload": record.workload.model_copy(update={"facts": given}),
        }
    )


def figures(record: RunRecord) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in metrics_of(record)}


def written(*ranks: tuple[str, Sequence[tuple[float, float]]]) -> list[PhaseSpan]:
    return [
        span("write", rank, host, window, 1000)
        for rank, (host, windows) in enumerate(ranks)
        for window in windows
    ]


def test_a_checkpoint_takes_from_the_first_start_to_the_last_end() -> None:
    """The rank that leaves the barrier late and the one that ends late are not the same."""
    spans = written(("a", [(0, 10), (100, 150)]), ("a", [(4, 13), (90, 140)]))
    found = figures(record_of(spans, [{}, {}], {"checkpoint_count": 2}))
    assert found["write_seconds_per_checkpoint"] == (13 + 60) / 2
    assert found["write_bytes_per_s"] == pytest.approx(4000 / 73)
    assert found["dlio_save_mean_of_rates_bytes_per_s"] == pytest.approx(
        (2000 / 13 + 2000 / 60) / 2
    )


def test_the_slowest_ranks_own_rate_stands_apart() -> None:
    spans = written(("a", [(0, 10), (20, 50)]), ("a", [(0, 10), (20, 50)]))
    found = figures(record_of(spans, [{"write_s": 20.0}, {"write_s": 40.0}]))
    assert found["mlperf_save_min_over_ranks_bytes_per_s"] == 2000 / 40


def test_a_commit_beside_training_counts() -> None:
    spans = [*written(("a", [(0, 10)]), ("a", [(0, 12)])), span("write", 0, "a", (20, 25), 0)]
    found = figures(record_of(spans, [{}, {}], {"mode": "async"}))
    assert found["drain_seconds_per_checkpoint"] == found["write_seconds_per_checkpoint"] == 17
    assert found["durable_seconds_per_checkpoint"] == 25


def test_times_of_two_hosts_are_compared_on_one_clock() -> None:
    spans = written(("a", [(0, 10)]), ("b", [(5000, 5020)]), ("b", [(5004, 5021)]))
    record = record_of(spans, [{}] * 3)
    (one,) = record.hosts
    ahead = ClockOffset(monotonic_ns=5000 * S, offset_ns=4998 * S, bound_ns=1000)
    b = {"facts": one.facts.model_copy(update={"name": "b"}), "offsets": (ahead,)}
    record = record.model_copy(update={"hosts": (one, one.model_copy(update=b))})
    assert figures(record)["write_seconds_per_checkpoint"] == 23


def stall(wait_s: float, snapshot_s: float, trained_s: float | None) -> dict[str, float | None]:
    return {"wait_s": wait_s, "snapshot_s": snapshot_s, "trained_s": trained_s}


def test_stalls_are_the_slowest_ranks_and_steps_are_told_apart() -> None:
    one = {"stalls": [stall(0, 0.004, None), stall(0.006, 0.004, 0.012)]}
    other = {"stalls": [stall(0, 0.005, None), stall(0.001, 0.005, 0.012)]}
    record = record_of(
        written(("a", [(0, 1)]), ("a", [(0, 1)])),
        [one, other],
        {"mode": "async"},
        draining_steps={"count": 2, "seconds": 0.024},
        other_steps={"count": 1, "seconds": 0.010},
    )
    assert (
        figures(record).items()
        >= {
            "stall_seconds_per_checkpoint": pytest.approx(10e-3),
            "stall_share": pytest.approx(10 / (10 + 12)),
            "drain_wait_seconds_per_checkpoint": pytest.approx(6e-3),
            "snapshot_seconds_per_checkpoint": pytest.approx(5e-3),
            "steps_during_drain": 2,
            "step_slowdown": pytest.approx(1.2),
        }.items()
    )


@pytest.mark.parametrize(
    ("kind", "message"), [("draining_steps", "without a drain"), ("other_steps", "during a")]
)
def test_a_slowdown_needs_steps_of_both_kinds(kind: str, message: str) -> None:
    steps = {kind: {"count": 1, "seconds": 0.1}}
    record = record_of(written(("a", [(0, 1)])), [{}], {"mode": "async"}, **steps)
    (slowdown,) = (each for each in metrics_of(record) if each.name == "step_slowdown")
    assert slowdown.value is None
    assert message in slowdown.missing["value"]


@pytest.mark.parametrize(("read_s", "verdict"), [(11, "pass"), (41, "pass"), (9, "fail")])
def test_reads_begin_after_the_last_write_in_one_command_at_any_time(
    read_s: int, verdict: str
) -> None:
    spans = [*written(("a", [(0, 10)])), span("read", 0, "a", (read_s, read_s + 1), 1000)]
    record = record_of(spans, [{}], {"protocol": "mlperf"})
    (found,) = (check for check in checks_of(record) if check.name == "mlperf_read_start")
    assert found.verdict == verdict
    assert found.figures["seconds"] == read_s - 10


WHOLE = {"file_bytes": [1000], "payload_bytes": 1000}


@pytest.mark.parametrize(
    ("check", "changed"),
    [
        ("checkpoint_bytes_on_target", {"file_bytes": [999]}),
        ("checkpoint_bytes_on_target", {"file_bytes": [1001]}),
        ("checkpoint_bytes_on_target", {"file_bytes": [1000, 1000]}),
        ("checkpoint_durable", {"synced_counts": [0]}),
        ("checkpoint_durable", {"file_count": 2}),
        ("checkpoint_read_back", {"payload_bytes": 999}),
        ("checkpoint_read_back", {"bad_blocks": 1}),
        ("checkpoint_read_back", {"bad_files": ["checkpoint-000000/rank-00000.bin"]}),
    ],
)
def test_counts_that_are_not_the_plans_fail_their_check(
    check: str, changed: dict[str, Any]
) -> None:
    spans = [*written(("a", [(0, 10)])), span("read", 0, "a", (11, 12), 1000)]
    for own, verdict in (({}, "pass"), (changed, "fail")):
        record = record_of(spans, [{**WHOLE, **own}])
        found = {each.name: each.verdict for each in checks_of(record)}
        assert found[check] == verdict
