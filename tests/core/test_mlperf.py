"""MLPerf Storage: published figures, and the rules that runs are held against."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mlperf_runs import (
    COLD,
    READ_START,
    checkpoint,
    figure,
    finding,
    five,
    training,
    with_config,
    with_loader,
)
from tests.records import Scenario, make_run
from wattload.core.mlperf.judge import RULES, UNET3D, DataSetRule, judge
from wattload.core.units import GIB, Unit

RECORD = UNET3D.record_mean_bytes


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


def test_pages_that_a_kernel_keeps_for_itself_change_no_data_set() -> None:
    memories = (252 * GIB - 5_000_000, 252 * GIB - 1, 252 * GIB)
    assert len({rule(memory).files for memory in memories}) == 1


@pytest.mark.parametrize("accelerators", [1, 3, 8])
@pytest.mark.parametrize("memory_gib", [8, 377, 1024])
def test_so_many_steps_take_in_the_files_and_one_less_would_not(
    accelerators: int, memory_gib: int
) -> None:
    found = rule(memory_gib * GIB, accelerators)
    batch = 7 * accelerators
    assert (found.steps - 1) * batch < found.files <= found.steps * batch


def test_a_run_by_all_rules_is_closed() -> None:
    for record, others in ((training(1), five()), (checkpoint(), [])):
        judgement = judge(record, others)
        assert judgement is not None
        assert {(each.rule, each.standing) for each in judgement.findings} == {
            (name, "closed") for workload, name, _ in RULES if workload == record.workload.name
        }
        assert judgement.standing == "closed"
        assert all(each.figures for each in judgement.findings)


def test_other_workloads_have_no_rules() -> None:
    assert judge(make_run(Scenario(workload="dlrm"))[0]) is None


@pytest.mark.parametrize(
    ("rule", "details"),
    [
        ("data_set_size", {"epoch_files": 28}),
        ("data_set_size", {"accelerators": 4000}),
        ("steps", {"steps_per_epoch": 499}),
        ("record_size", {"record_mean_bytes": 2_000_000}),
        ("record_size", {"resize_bytes": 4096}),
        ("record_size", {"record_divisor": 2}),
        ("batch", {"batch_samples": 4}),
        ("step_time", {"step_s": 0.1}),
        ("epochs", {"epochs": 24}),
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
    found = finding(with_config(training(), accelerator={"name": "unpaced"}), "step_time")
    assert found.standing == "invalid"
    assert "a100, h100, b200" in found.sentence


def test_a_utilisation_under_the_threshold_is_invalid_and_without_one_not_checked() -> None:
    record = training()
    for dlio, nominal in ((0.899, 0.95), (0.95, 0.899)):
        low = (
            figure("au_dlio", dlio, Unit.FRACTION),
            figure("au_nominal", nominal, Unit.FRACTION),
        )
        found = finding(record.model_copy(update={"metrics": low}), "accelerator_utilisation")
        assert found.standing == "invalid"
        assert "89.90 %" in found.sentence
    none = finding(record.model_copy(update={"metrics": ()}), "accelerator_utilisation")
    assert none.standing == "not_checked"


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
    slow = runs[4].model_copy(
        update={"metrics": (figure("samples_per_s", 40.0, Unit.SAMPLES_PER_SECOND),)}
    )
    assert finding(runs[0], "five_runs", [*runs[:4], slow]).standing == "invalid"
    other = with_config(runs[4], loader={"queue_depth": 3})
    assert finding(runs[0], "five_runs", [*runs[:4], other]).standing == "not_checked"


@pytest.mark.parametrize(
    ("rule", "settings", "facts", "ranks"),
    [
        ("model", {"model": "405b_server"}, {}, 8),
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
        ("405b_server", 8, "not_checked"),
    ],
)
def test_processes_are_exactly_the_models_or_a_subset(
    model: str, ranks: int, standing: str
) -> None:
    record = checkpoint({"model": model})
    work = record.workload.model_copy(update={"rank_count": ranks})
    found = finding(record.model_copy(update={"workload": work}), "processes")
    assert found.standing == standing
    is_subset = model in {"70b", "mlperf_subset"} and ranks == 8
    assert ("v2.0's subset" in found.sentence) == is_subset


def test_checkpoints_without_fsync_are_invalid_and_another_loader_is_open() -> None:
    assert finding(with_config(checkpoint(), workload={"fsync": False}), "fsync").standing == (
        "invalid"
    )
    assert finding(with_config(checkpoint(), workload={}), "fsync").standing == "not_checked"
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


def test_a_record_with_few_facts_is_not_checked() -> None:
    record = training()
    bare = record.model_copy(
        update={"workload": record.workload.model_copy(update={"facts": {}}), "config": {}}
    )
    for rule in ("data_set_size", "steps", "record_size", "batch", "step_time", "epochs"):
        assert finding(bare, rule).standing == "not_checked"


HOSTILE: tuple[object, ...] = ("1", [], {}, True, float("nan"), float("inf"), -1, 0, 10**400)


@pytest.mark.parametrize("value", HOSTILE, ids=str)
def test_facts_of_another_kind_are_not_checked_and_no_error(value: object) -> None:
    for record in (training(1), checkpoint()):
        own = record.workload.facts
        for name in own:
            workload = record.workload.model_copy(update={"facts": {**own, name: value}})
            judgement = judge(record.model_copy(update={"workload": workload}))
            assert judgement is not None
            assert all(found.sentence for found in judgement.findings)
        settings = record.config["workload"]
        for name in settings:
            judgement = judge(with_config(record, workload={**settings, name: value}))
            assert judgement is not None
            assert all(found.sentence for found in judgement.findings)
