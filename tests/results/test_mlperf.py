"""How far runs are from a submission to MLPerf Storage, in words."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mlperf_runs import checkpoint, five, training, with_loader
from tests.records import Scenario, make_run
from wattload.core.record.results import Check
from wattload.results.checkpoint.outcome import WORDS as OF_CHECKPOINTS
from wattload.results.checkpoint.submission import SUBMISSION as CHECKPOINT
from wattload.results.mlperf import submission_text
from wattload.results.reading import asked, view_of
from wattload.results.training.outcome import WORDS as OF_TRAINING
from wattload.results.training.submission import SUBMISSION as TRAINING

AU = "accelerator_utilisation"


def test_every_rule_that_can_be_missed_has_words() -> None:
    never = {AU, "record_format", "data_loader", "prefetch", "framework"}
    for submission, words in ((TRAINING, OF_TRAINING), (CHECKPOINT, OF_CHECKPOINTS)):
        assert words.keys() == submission.rules.keys() - never


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"steps_per_epoch": 4}, "4 of 500 steps in an epoch"),
        ({"epochs": 24}, "epochs 24 instead of 5"),
        (
            {"steps_per_epoch": 4, "epochs": 24},
            "4 of 500 steps in an epoch, and 1 more rule missed",
        ),
        ({"batch_samples": 4}, "batch 4 instead of 7"),
        (
            {"record_divisor": 64},
            "record bytes 2,290,634.812 instead of 146,600,628, and 1 more rule missed",
        ),
        ({"resize_bytes": 4096}, "another spread of records"),
        ({"step_s": 0.1}, "step time 0.1 instead of 0.323"),
    ],
)
def test_the_first_missed_rule_is_named_and_the_others_are_counted(
    changes: dict[str, Any], text: str
) -> None:
    found = submission_text([training(**changes)], OF_TRAINING, but=AU)
    assert found == f"not a submission: {text}"


def test_files_come_first_with_thousands() -> None:
    text = submission_text([training(epoch_files=28, steps_per_epoch=4)], OF_TRAINING)
    assert text.startswith("not a submission: 28 of 14,000 files, and ")


def test_an_invalid_run_is_named_before_the_rules_that_it_misses() -> None:
    broken = Check(name="delivered", verdict="fail", sentence="3 of 4 differ.", mandatory=True)
    run = training(epoch_files=28, steps_per_epoch=4).model_copy(update={"checks": (broken,)})
    text = submission_text([run], OF_TRAINING)
    assert text.startswith("not a submission: an invalid run, and ")
    run = checkpoint({"checkpoint_count": 4}).model_copy(update={"status": "aborted"})
    text = submission_text([run], OF_CHECKPOINTS)
    assert text.startswith("not a submission: an invalid run, and ")


def test_the_rate_of_a_save_by_mlperfs_rule_has_no_commit() -> None:
    record = make_run(Scenario(workload="checkpoint"))[0]
    text = asked(record, lambda run: view_of(record).outcome([run]), "")
    assert "the slowest rank saves at 1.500\xa0GB/s without the commit and loads at " in text


@pytest.mark.parametrize(
    ("settings", "facts", "text"),
    [
        ({"model": "405b_server"}, {}, "the model 405b_server"),
        ({"checkpoint_count": 4}, {}, "4 + 4 checkpoints instead of 10 + 10"),
        ({}, {"interval_s": 0.0}, "0.0 s between checkpoints instead of 5.0 s"),
        ({}, {"whole_bytes": 79}, "a part of each checkpoint"),
        ({"mode": "async"}, {}, "checkpoints during training"),
    ],
)
def test_what_checkpoints_lack(settings: dict[str, Any], facts: dict[str, Any], text: str) -> None:
    found = submission_text([checkpoint(settings, **facts)], OF_CHECKPOINTS)
    assert found == f"not a submission: {text}"


def test_runs_that_miss_no_rule_are_closed_or_open_and_one_run_is_no_result() -> None:
    assert submission_text(five(), OF_TRAINING, but=AU) == "otherwise as CLOSED requires"
    alone = submission_text([training()], OF_TRAINING, but=AU)
    assert alone == "no other rule missed, 1 rule not checked"
    others = [with_loader(run, "direct") for run in five()]
    assert submission_text(others, OF_TRAINING, but=AU) == "otherwise as OPEN allows"
    assert submission_text([checkpoint()], OF_CHECKPOINTS) == "otherwise as CLOSED requires"
