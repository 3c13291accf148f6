"""The rules of MLPerf Storage on runs of ours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mlperf_runs import (
    COLD,
    READ_START,
    RECORD,
    checkpoint,
    finding,
    five,
    memory_of,
    training,
    with_config,
    with_facts,
    with_loader,
)
from tests.records import Scenario, make_run
from wattload.core.errors import RecordError
from wattload.core.mlperf.rules import DataSetRule
from wattload.core.units import GIB
from wattload.results.mlperf import judge
from wattload.results.registry import results_of


def rule(memory_bytes: int, accelerators: int = 1) -> DataSetRule:
    return DataSetRule(
        accelerators=accelerators, batch_samples=7, record_bytes=RECORD, memory_bytes=memory_bytes
    )


def test_500_steps_rule_while_memory_is_small() -> None:
    # 4 accelerators of a Micron 9550's host with 256 GB: 14,000 files were used.
    assert rule(256 * 10**9, 4).files == 14_000
    assert rule(256 * 10**9, 4).steps == 500


def test_five_times_memory_rules_beyond_95_gib_for_each_accelerator() -> None:
    assert rule(95 * GIB).files == 3500
    assert rule(96 * GIB).files == rule(96 * GIB).by_memory == 5 * 96 * GIB // RECORD > 3500


@pytest.mark.parametrize("accelerators", [1, 3, 8])
@pytest.mark.parametrize("memory_gib", [8, 377, 1024])
def test_so_many_steps_take_in_the_files_and_one_less_would_not(
    accelerators: int, memory_gib: int
) -> None:
    found = rule(memory_gib * GIB, accelerators)
    batch = 7 * accelerators
    assert (found.steps - 1) * batch < found.files <= found.steps * batch


def test_a_run_by_all_rules_is_closed() -> None:
    for record, others, edition in ((training(1), five(), "v2.0"), (checkpoint(), [], "v3.0")):
        judgement = judge(record, others)
        results = results_of(record.workload.name)
        assert judgement is not None
        assert results is not None
        assert results.submission is not None
        assert [(each.rule, each.standing) for each in judgement.findings] == [
            (name, "closed") for name in results.submission.rules
        ]
        assert (judgement.standing, judgement.edition) == ("closed", edition)
        ids = {each.rule: each.id for each in judgement.findings}
        assert ids["sound_run"] == "wl-sound_run"
        assert all(each.id for each in judgement.findings)


@pytest.mark.parametrize(("edition", "identity"), [("v1.0", "3"), ("v3.0", "3.1.2")])
def test_a_run_is_held_against_any_edition_that_is_named(edition: str, identity: str) -> None:
    judgement = judge(training(1), five(), edition)
    assert judgement is not None
    found = {each.rule: each for each in judgement.findings}
    assert (judgement.edition, found["data_set_size"].id) == (edition, identity)
    is_other = found["job"].sentence == "The job has accelerator h100 instead of b200."
    assert is_other is (edition == "v3.0")


def test_other_workloads_have_no_rules() -> None:
    assert judge(make_run(Scenario(workload="dlrm"))[0]) is None


@pytest.mark.parametrize(
    ("rule", "details"),
    [
        ("data_set_size", {"epoch_files": 28}),
        ("data_set_size", {"accelerators": 4000}),
        ("steps", {"steps_per_epoch": 499}),
        ("job", {"record_mean_bytes": 2_000_000}),
        ("record_size", {"resize_bytes": 4096}),
        ("record_size", {"record_divisor": 2}),
        ("job", {"batch_samples": 4}),
        ("job", {"step_s": 0.1}),
        ("job", {"epochs": 24}),
    ],
)
def test_another_training_job_is_invalid(rule: str, details: dict[str, Any]) -> None:
    record = training(**details)
    found = finding(record, rule)
    assert found.standing == "invalid"
    judgement = judge(record)
    assert judgement is not None
    assert judgement.standing == "invalid"


def test_an_accelerator_that_is_not_published_is_invalid() -> None:
    record = training()
    work = record.workload.model_copy(update={"accelerator": "unpaced"})
    found = finding(record.model_copy(update={"workload": work}), "job")
    assert found.standing == "invalid"
    assert "accelerator unpaced instead of b200" in found.sentence


def test_a_utilisation_under_the_threshold_is_invalid_and_without_one_not_checked() -> None:
    assert "95.00 % by DLIO's formula and 94.00 % by" in (
        finding(training(), "accelerator_utilisation").sentence
    )
    low = finding(training(seconds=9.0), "accelerator_utilisation")
    assert low.standing == "invalid"
    assert low.figures["au_dlio"] > 0.9 > low.figures["au_nominal"]  # type: ignore[operator]
    unpaced = finding(training(step_s=0.0), "accelerator_utilisation")
    assert unpaced.standing == "not_checked"


@pytest.mark.parametrize(
    ("verdict", "standing"), [("fail", "invalid"), ("not_checked", "not_checked")]
)
def test_a_cache_that_was_not_cold_is_no_run(verdict: str, standing: str) -> None:
    check = COLD.model_copy(update={"verdict": verdict})
    record = training().model_copy(update={"checks": (check,)})
    assert finding(record, "cold_cache").standing == standing
    assert finding(training().model_copy(update={"checks": ()}), "cold_cache").standing == (
        "not_checked"
    )


def test_open_takes_another_format_or_loader() -> None:
    assert finding(training(record_format="npy"), "record_format").standing == "open"
    for loader in ("direct", "dali"):
        assert finding(with_loader(training(), loader), "data_loader").standing == "open"
    dlio = with_loader(training(), "dlio")
    assert finding(dlio, "data_loader").standing == "closed"
    ours = with_config(dlio, loader={"reader": "wattload"})
    assert finding(ours, "data_loader").standing == "open"
    runs = [with_loader(run, "direct") for run in five()]
    whole, alone = judge(runs[0], runs), judge(runs[0])
    assert whole is not None
    assert whole.standing == "open"
    assert alone is not None
    assert alone.standing == "not_checked"


@pytest.mark.parametrize(("factor", "standing"), [(1, "closed"), (2, "closed"), (3, "open")])
def test_more_batches_ahead_than_closed_has_are_open(factor: int, standing: str) -> None:
    for loader in ("torch", "dlio"):
        record = with_loader(with_config(training(), loader={"prefetch_factor": factor}), loader)
        assert finding(record, "prefetch").standing == standing
    assert finding(with_config(training(), loader={}), "prefetch").standing == "not_checked"
    assert finding(with_loader(training(), "direct"), "prefetch").standing == "open"


@pytest.mark.parametrize("make", [training, checkpoint])
def test_a_run_that_failed_or_has_a_failed_check_is_invalid(make: Any) -> None:
    failed = COLD.model_copy(update={"name": "delivered_bytes", "verdict": "fail"})
    found = finding(make().model_copy(update={"checks": (COLD, failed)}), "sound_run")
    assert (found.standing, found.figures["faults"]) == ("invalid", 1)
    assert "delivered_bytes failed" in found.sentence
    aborted = finding(make().model_copy(update={"status": "aborted"}), "sound_run")
    assert "it is aborted" in aborted.sentence
    of_power = COLD.model_copy(update={"name": "power_coverage", "verdict": "fail"})
    power = finding(make().model_copy(update={"checks": (COLD, of_power)}), "sound_run")
    assert power.standing == "closed"


def test_a_run_on_another_drive_is_none_of_the_five() -> None:
    runs = five()
    (target,) = runs[4].targets
    facts = target.facts.model_copy(update={"controllers": ("another",)})
    moved = target.model_copy(update={"facts": facts})
    runs[4] = runs[4].model_copy(update={"targets": (moved,)})
    assert finding(runs[0], "five_runs", runs).standing == "not_checked"


def test_a_run_with_a_failed_check_is_none_of_the_five() -> None:
    runs = five()
    failed = COLD.model_copy(update={"name": "delivered_bytes", "verdict": "fail"})
    runs[4] = runs[4].model_copy(update={"checks": (COLD, failed)})
    assert finding(runs[0], "five_runs", runs).standing == "not_checked"


def test_hosts_with_different_numbers_of_ranks_are_invalid() -> None:
    record = training()
    (rank,) = record.ranks
    others = [rank.model_copy(update={"rank": n, "host": "second"}) for n in (1, 2)]
    found = finding(record.model_copy(update={"ranks": (rank, *others)}), "hosts_alike")
    assert found.standing == "invalid"
    assert "box: 1, second: 2" in found.sentence


def test_a_result_is_five_runs_with_seeds_of_their_own_near_their_mean() -> None:
    runs = five()
    assert finding(runs[0], "five_runs", runs[:4]).standing == "not_checked"
    assert finding(runs[0], "five_runs", runs).standing == "closed"
    twice = [*runs[:4], runs[4].model_copy(update={"config": runs[3].config})]
    assert finding(twice[0], "five_runs", twice).standing == "invalid"
    slow = training(5, seconds=90.0)
    assert finding(runs[0], "five_runs", [*runs[:4], slow]).standing == "invalid"
    other = with_config(runs[4], loader={"queue_depth": 3})
    assert finding(runs[0], "five_runs", [*runs[:4], other]).standing == "not_checked"


@pytest.mark.parametrize(
    ("rule", "settings", "facts", "ranks"),
    [
        ("processes", {"model": "405b_server"}, {}, 8),
        ("processes", {"model": "mlperf_subset_70b"}, {}, 4),
        ("whole_checkpoint", {}, {"whole_bytes": 79}, 8),
        ("checkpoint_count", {"checkpoint_count": 4}, {}, 8),
        ("checkpoint_interval", {}, {"interval_s": 0.0}, 8),
        ("writes_before_reads", {}, {"kept": 1}, 8),
        ("synchronous", {"mode": "async"}, {}, 8),
    ],
)
def test_another_checkpoint_job_is_invalid(
    rule: str, settings: dict[str, Any], facts: dict[str, Any], ranks: int
) -> None:
    record = checkpoint(settings, **facts)
    work = record.workload.model_copy(update={"rank_count": ranks})
    assert finding(record.model_copy(update={"workload": work}), rule).standing == "invalid"


@pytest.mark.parametrize(
    ("model", "ranks", "standing"),
    [
        ("8b", 8, "closed"),
        ("8b", 4, "invalid"),
        ("70b", 64, "closed"),
        ("70b", 8, "closed"),
        ("70b", 16, "invalid"),
        ("mlperf_subset", 8, "closed"),
        ("405b_server", 8, "invalid"),
        ("mlperf_subset_8b", 8, "closed"),
    ],
)
def test_processes_are_exactly_the_models_or_a_subset(
    model: str, ranks: int, standing: str
) -> None:
    record = checkpoint({"model": model})
    work = record.workload.model_copy(update={"rank_count": ranks})
    found = finding(record.model_copy(update={"workload": work}), "processes")
    assert found.standing == standing
    judgement = judge(record.model_copy(update={"workload": work}))
    assert judgement is not None
    assert (judgement.edition == "v2.0") == (model in {"70b", "mlperf_subset"} and ranks == 8)


def test_checkpoints_without_fsync_are_invalid_and_another_loader_is_open() -> None:
    assert finding(checkpoint({"fsync": False}), "fsync").standing == "invalid"
    assert finding(with_loader(checkpoint(), "direct"), "framework").standing == "open"


def test_reads_that_began_too_early_are_invalid_and_unknown_ones_not_checked() -> None:
    assert finding(checkpoint(), "read_start").standing == "closed"
    early = READ_START.model_copy(update={"verdict": "fail"})
    for checks, standing in (((COLD, early), "invalid"), ((COLD,), "not_checked")):
        record = checkpoint().model_copy(update={"checks": checks})
        assert finding(record, "read_start").standing == standing


def test_caches_must_be_dropped_under_three_times_a_clients_memory() -> None:
    large = checkpoint()
    assert "caches may stay" in finding(large, "cache_rule").sentence
    small = checkpoint(rank_bytes=[1000] * 8)
    assert finding(small, "cache_rule").standing == "closed"
    assert "caches must be dropped" in finding(small, "cache_rule").sentence
    warm = small.model_copy(update={"checks": (COLD.model_copy(update={"verdict": "fail"}),)})
    assert finding(warm, "cache_rule").standing == "invalid"
    unknown = small.model_copy(update={"hosts": ()})
    found = finding(unknown, "cache_rule")
    assert (found.standing, found.figures) == ("not_checked", {})
    assert "memory of a host is unknown" in found.sentence


def test_a_record_without_facts_is_not_judged_and_one_with_others_is_refused() -> None:
    record = training()
    bare = record.workload.model_copy(update={"facts": {}})
    assert judge(record.model_copy(update={"workload": bare})) is None
    with pytest.raises(RecordError, match="epoch_files"):
        judge(with_facts(record, epoch_files="many"))


@pytest.mark.parametrize("value", ["1", None, True])
def test_settings_of_another_kind_are_not_checked(value: object) -> None:
    record = training()
    settings = {**record.config["workload"], "resize_bytes": value}
    assert finding(with_config(record, workload=settings), "record_size").standing == "not_checked"
    loader = with_config(record, loader={"prefetch_factor": value})
    assert finding(loader, "prefetch").standing == "not_checked"


def test_files_of_unknown_memory_are_not_checked() -> None:
    found = finding(training().model_copy(update={"hosts": ()}), "data_set_size")
    assert found.standing == "not_checked"
    assert memory_of(training()) > 0
