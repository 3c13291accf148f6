"""MLPerf Storage's figures by edition, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from wattload.core.mlperf.formulas import (
    Value,
    au,
    au_with_first_step,
    rank_steps,
    samples_per_s,
    whole_block_samples_per_s,
)
from wattload.core.mlperf.published import Epoch, RankBlock, TrainingFacts


def listed(rank: int, duration_s: float = 110.0, steps: int = 10, **changes: float) -> RankBlock:
    """Return a block with a step list: steps of 8 s that compute for 7.5 s, after one of 30 s."""
    times = {"first_step_s": 30.0, "first_compute_s": 7.5, "compute_s": 7.5 * steps, **changes}
    return RankBlock(rank=rank, duration_s=duration_s, steps=steps, **times)


def facts(*epochs: Epoch, **changes: object) -> TrainingFacts:
    values = {
        "model": "unet3d",
        "accelerator": "h100",
        "accelerators": 2,
        "file_count": 140,
        "samples_per_file": 1,
        "record_bytes": 1e6,
        "batch_samples": 7,
        "step_s": 7.5,
        "epochs": epochs,
        **changes,
    }
    return TrainingFacts.model_validate(values)


def epoch(*blocks: RankBlock) -> Epoch:
    return blocks


BOTH = facts(epoch(listed(0), listed(1)))


@pytest.mark.parametrize(
    ("edition", "expected"),
    [("v1.0", 2 * 10 * 7 / 110), ("v2.0", 2 * 8 * 7 / 80), ("v3.0", 2 * 9 * 7 / 80)],
)
def test_each_edition_counts_its_own_steps_and_time(edition: str, expected: float) -> None:
    assert samples_per_s(BOTH, edition).value == pytest.approx(expected)


def test_the_whole_block_is_that_of_v1() -> None:
    assert whole_block_samples_per_s(BOTH) == samples_per_s(BOTH, "v1.0")


def test_utilisation_leaves_out_the_first_step_and_has_a_form_with_it() -> None:
    assert au(BOTH).value == pytest.approx(7.5 * 9 / 80)
    assert au_with_first_step(BOTH).value == pytest.approx(75 / 110)
    slept = facts(epoch(listed(0, compute_s=80.0), listed(1, compute_s=80.0)))
    assert au(slept).value == pytest.approx(72.5 / 80)


def test_a_block_of_one_step_has_figures_of_the_whole_block_alone() -> None:
    run = facts(epoch(listed(0, steps=1)), file_count=14)
    unknown = Value(None, "an epoch has no step after its first one")
    assert au(run) == samples_per_s(run, "v2.0") == samples_per_s(run, "v3.0") == unknown
    assert samples_per_s(run, "v1.0").value == pytest.approx(2 * 7 / 110)


def test_ranks_are_summed_in_throughput_and_averaged_in_utilisation() -> None:
    run = facts(epoch(listed(0), listed(1, duration_s=190.0)))
    assert samples_per_s(run, "v1.0").value == pytest.approx(70 / 110 + 70 / 190)
    assert au(run).value == pytest.approx((67.5 / 80 + 67.5 / 160) / 2)


def test_of_one_known_rank_all_others_are_like_it() -> None:
    assert samples_per_s(facts(epoch(listed(0))), "v2.0") == samples_per_s(BOTH, "v2.0")


def test_blocks_are_weighted_by_their_steps_and_epochs_are_averaged() -> None:
    two = epoch(listed(0), listed(1), listed(0, 200.0, 20), listed(1, 200.0, 20))
    run = facts(two, epoch(listed(0), listed(1)))
    first, second = 2 * 7 * (10 / 110 * 10 + 20 / 200 * 20) / 30, 140 / 110
    assert samples_per_s(run, "v1.0").value == pytest.approx((first + second) / 2)


def test_from_block_times_the_whole_block_is_known_and_the_rest_has_a_reason() -> None:
    run = facts(epoch(RankBlock(rank=0, duration_s=110.0)))
    assert samples_per_s(run, "v1.0").value == pytest.approx(140 / 110)
    for value, reason in (samples_per_s(run, "v2.0"), samples_per_s(run, "v3.0"), au(run)):
        assert value is None
        assert "step lists" in reason
    nominal = 10 * run.step_s / 110 if run.step_s else None
    assert au_with_first_step(run).value == pytest.approx(nominal)
    assert "nominal step time" in au_with_first_step(run).reason


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (facts(), "epochs are unknown"),
        (facts(()), "its blocks are unknown"),
        (facts(epoch(RankBlock(rank=0, duration_s=1)), batch_samples=None), "batch is unknown"),
        (facts(epoch(RankBlock(rank=0, duration_s=1)), file_count=13), "no batch is full"),
        (facts(epoch(RankBlock(rank=0, duration_s=1)) * 2), "each of"),
    ],
)
def test_what_is_unknown_has_a_reason(run: TrainingFacts, reason: str) -> None:
    value, why = samples_per_s(run, "v1.0")
    assert value is None
    assert reason in why


def test_an_epoch_of_its_first_step_alone_has_no_rate_without_it() -> None:
    run = facts(epoch(listed(0, duration_s=30.0, steps=1)))
    assert samples_per_s(run, "v3.0").value is None
    assert samples_per_s(run, "v1.0").value == pytest.approx(14 / 30)


@pytest.mark.parametrize(
    ("accelerators", "files", "steps"),
    [(1, 159, 497), (2, 319, 498), (3, 479, 499), (5, 799, 499), (5, 800, 500)],
)
def test_steps_of_a_rank_are_whole_batches_of_its_share(
    accelerators: int, files: int, steps: int
) -> None:
    run = facts(
        accelerators=accelerators, file_count=files, samples_per_file=1251, batch_samples=400
    )
    assert rank_steps(run) == steps
    assert rank_steps(facts(batch_samples=None)) is None


@pytest.mark.parametrize(
    ("epochs", "source"),
    [
        ((epoch(listed(0), listed(1)),), "steps"),
        ((epoch(listed(0)),), "blocks"),
        ((epoch(RankBlock(rank=0, duration_s=110.0)),), "blocks"),
        (((),), "summary"),
        ((), "summary"),
    ],
)
def test_rates_follow_from_step_lists_only_if_every_rank_has_one(
    epochs: tuple[Epoch, ...], source: str
) -> None:
    assert facts(*epochs).source == source
