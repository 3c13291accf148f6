"""Rules and notes on published sets: each change is found by its rule, and by no other.

The tables below say which other rules a change implies, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.mlperf_sets import (
    CHECKPOINT_SETTINGS,
    V1_SETTINGS,
    cache_set,
    changed,
    checkpoint_set,
    hosts_of,
    slower,
    training_set,
    vector_set,
    with_facts,
    with_runs,
)
from wattload.core.mlperf.edition import core_config, editions, nearest_edition
from wattload.core.mlperf.notes import copies, notes
from wattload.core.mlperf.published import (
    Operation,
    PublishedRun,
    PublishedSet,
    RankBlock,
    ReportedSet,
    Unread,
)
from wattload.core.mlperf.rules import RULES, Finding, judge
from wattload.core.units import GIB

V1, V3 = training_set(), training_set("v3.0")
CHECKPOINTS, CACHE, VECTORS = checkpoint_set(), cache_set(), vector_set()
OPTIONS = CACHE.facts.options  # type: ignore[union-attr]


def found(published: PublishedSet, *others: PublishedSet) -> dict[str, Finding]:
    """Return what is found of a set besides rules that are kept, by the name of the rule."""
    name, _ = nearest_edition(published.facts, published.runs[0].settings, published.edition)
    findings = [*judge(published, editions()[name]), *notes(published, name)]
    findings += [note for index, note in copies([published, *others]).items() if index == 0]
    return {each.rule: each for each in findings if each.standing != "closed"}


def standings(published: PublishedSet) -> dict[str, str]:
    return {rule: finding.standing for rule, finding in found(published).items()}


@pytest.mark.parametrize("published", [V1, V3, CHECKPOINTS, CACHE, VECTORS])
def test_a_set_by_all_rules_keeps_them(published: PublishedSet) -> None:
    assert standings(published) == {}
    kind, edition = published.facts.kind, editions()[published.edition or ""]
    expected = {r.name for r in RULES[kind] if (r.text or r.name) in edition.rules}
    kept = judge(published, edition)
    assert {each.rule for each in kept} == expected
    assert {each.id for each in kept} <= set(edition.rules.values())


def swapped(published: PublishedSet) -> PublishedSet:
    """Return a set with the first two runs' rates under each other's names in its report."""
    first, second, *_ = names = [run.name for run in published.runs]
    rates: dict[str, Any] = {}
    for run in published.runs:
        rates[run.name] = run.facts.reported.samples_per_s_mean  # type: ignore[union-attr]
    others = {first: second, second: first}
    report = ReportedSet(runs={name: rates[others.get(name, name)] for name in names})
    return published.model_copy(update={"reported": report})


def reported(published: PublishedSet, *which: int, **update: Any) -> PublishedSet:
    """Return a set with other reported figures; a function makes one from what was reported."""

    def change(run: PublishedRun) -> PublishedRun:
        old = run.facts.reported  # type: ignore[union-attr]
        new = {
            name: value(getattr(old, name)) if callable(value) else value
            for name, value in update.items()
        }
        facts = run.facts.model_copy(update={"reported": old.model_copy(update=new)})  # type: ignore[union-attr]
        return run.model_copy(update={"facts": facts})

    return with_runs(published, change, *which)


def without_steps(run: PublishedRun) -> PublishedRun:
    epochs = ((RankBlock(rank=0, duration_s=340.0),),) * 5
    return run.model_copy(update={"facts": run.facts.model_copy(update={"epochs": epochs})})


def three_epochs(published: PublishedSet) -> PublishedSet:
    return with_runs(
        published,
        lambda run: run.model_copy(
            update={"facts": run.facts.model_copy(update={"epochs": run.facts.epochs[:3]})}  # type: ignore[union-attr]
        ),
    )


def settings(**update: object) -> Mapping[str, object]:
    return {**V1_SETTINGS, **{name.replace("__", "."): value for name, value in update.items()}}


def overriding(name: str, value: str) -> Mapping[str, str]:
    return {**V1.runs[0].overrides, name: value}


FIFTH_GIB = 14_000 * 146600628 / GIB / 5 / 2
"""The memory of a host of which the data set is exactly enough."""

TRAINING_CHANGES: tuple[tuple[str, PublishedSet, Mapping[str, str]], ...] = (
    # The reported utilisation is no fact where step lists are: its rule takes the recomputed one.
    ("AU of a summary", reported(V1, 1, au_mean=0.5), {"recomputed": "note", "summary": "note"}),
    (
        "AU of step lists",
        slower(V1, are_reported=False),
        {"accelerator_utilisation": "invalid", "recomputed": "note"},
    ),
    # Reported consistently, but in no report of the set.
    (
        "slow runs",
        slower(V1, are_reported=True),
        {"accelerator_utilisation": "invalid", "report": "note"},
    ),
    (
        "throughput of a summary",
        reported(V1, 2, samples_per_s_mean=500.0),
        {"recomputed": "note", "summary": "note", "report": "note", "spread": "warning"},
    ),
    (
        "unit",
        reported(V1, nominal_bytes_per_s=lambda rate: rate * 2**20 / 1e6),
        {"summary": "note"},
    ),
    ("epochs", three_epochs(V1), {"job": "invalid"}),
    (
        "epochs in the settings",
        changed(three_epochs(V1), settings=settings(train__epochs=3)),
        {"job": "invalid", "comparability_class": "invalid"},
    ),
    (
        "a batch of the command",
        changed(
            with_facts(V1, batch_samples=4),
            settings=settings(reader__batch_size=4),
            overrides=overriding("reader.batch_size", "4"),
        ),
        # The same lists of steps are fewer samples, and 14,000 files more steps.
        {
            "job": "invalid",
            "comparability_class": "invalid",
            "overrides": "invalid",
            "recomputed": "note",
        },
    ),
    (
        "an override",
        changed(V1, 3, overrides=overriding("train.seed", "1")),
        {"overrides": "invalid"},
    ),
    (
        "OPEN's loader",
        changed(
            V1,
            settings=settings(reader__data_loader="dali"),
            overrides=overriding("reader.data_loader", "dali"),
        ),
        {"overrides": "open", "comparability_class": "open"},
    ),
    (
        "one run's threads",
        changed(V1, 4, settings=settings(reader__read_threads=9)),
        {"settings": "note"},
    ),
    ("a path", changed(V1, 4, settings=settings(dataset__data_folder="/other")), {}),
    (
        "more prefetched than allowed",
        changed(V1, 3, overrides=overriding("reader.prefetch_size", "3")),
        {"overrides": "invalid"},
    ),
    (
        "prefetched as allowed",
        changed(V1, 3, overrides=overriding("reader.prefetch_size", "0")),
        {},
    ),
    (
        "a run less",
        V1.model_copy(update={"runs": V1.runs[:4], "reported": None}),
        {"run_count": "invalid"},
    ),
    (
        "a run that only the report has",
        V1.model_copy(update={"runs": V1.runs[:4]}),
        {"run_count": "not_checked"},
    ),
    (
        "a run in the middle that can't be read",
        V3.model_copy(
            update={
                "runs": (*V3.runs[:2], *V3.runs[3:]),
                "unread": (Unread(path=f"{V3.path}/run2/summary.json", reason="not JSON"),),
            }
        ),
        {"run_count": "not_checked", "consecutive": "not_checked"},
    ),
    (
        "a file of a run that can't be read",
        V3.model_copy(
            update={
                "runs": V3.runs[:5],
                "unread": (Unread(path=f"{V3.path}/run2/fs.json", reason="not JSON"),),
            }
        ),
        {"run_count": "invalid"},
    ),
    # A copy has the times of its original.
    (
        "a copied run",
        V1.model_copy(
            update={"runs": (*V1.runs[:4], V1.runs[0].model_copy(update={"name": "run4"}))}
        ),
        {"copies": "note", "consecutive": "warning", "report": "note"},
    ),
    (
        "a swapped report",
        V1.model_copy(update={"reported": V1.reported.model_copy(update={"runs": {"run0": 7.0}})}),  # type: ignore[union-attr]
        {"report": "note"},
    ),
    (
        "two runs swapped in a report",
        swapped(slower(V1, 1, are_reported=True)),
        {"accelerator_utilisation": "invalid", "report": "note", "spread": "warning"},
    ),
    (
        "memory far above",
        changed(V1, host_memory_bytes=hosts_of(512)),
        {"data_set_size": "invalid"},
    ),
    (
        "memory 0.2 % above",
        changed(V1, host_memory_bytes=hosts_of(FIFTH_GIB * 1.002)),
        {"data_set_size": "warning"},
    ),
    (
        "memory 0.4 % above",
        changed(V1, host_memory_bytes=hosts_of(FIFTH_GIB * 1.004)),
        {"data_set_size": "invalid"},
    ),
    (
        "unknown memory",
        changed(V1, host_memory_bytes=hosts_of(170, 1)),
        {"data_set_size": "not_checked"},
    ),
    (
        "unknown, but enough",
        changed(V1, host_memory_bytes=hosts_of(2048, 1)),
        {"data_set_size": "invalid"},
    ),
    (
        "one run's memory",
        changed(V1, 1, host_memory_bytes=hosts_of(512)),
        {"data_set_size": "invalid"},
    ),
    (
        "few files",
        with_facts(changed(V1, host_memory_bytes=hosts_of(8)), file_count=499 * 14),
        {"data_set_size": "invalid", "steps": "invalid"},
    ),
    (
        "hosts",
        changed(V1, host_memory_bytes=hosts_of(120) + hosts_of(120)[:1]),
        {"hosts_alike": "invalid"},
    ),
    (
        "a gap",
        changed(V1, 4, started_s=V1.runs[4].started_s + 1e5, ended_s=V1.runs[4].ended_s + 1e5),  # type: ignore[operator]
        {"consecutive": "warning"},
    ),
    (
        "a gap, limited by v3.0",
        changed(V3, 5, started_s=V3.runs[5].started_s + 1e5, ended_s=V3.runs[5].ended_s + 1e5),  # type: ignore[operator]
        {"consecutive": "invalid"},
    ),
    (
        "no warm-up",
        V3.model_copy(update={"runs": V3.runs[1:]}),
        {"run_count": "invalid"},
    ),
    (
        "a slow warm-up",
        slower(V3, 0, are_reported=True),
        {},
    ),
    (
        # Only v3.0 has it, which has a warm-up; the rate is as v1.0's formula gives it.
        "another accelerator",
        with_facts(V1, accelerator="b200"),
        {
            "job": "invalid",
            "comparability_class": "invalid",
            "run_count": "invalid",
        },
    ),
    (
        "one run without its configuration",
        changed(V1, 2, settings={}, overrides={}),
        {"overrides": "not_checked", "comparability_class": "not_checked"},
    ),
    (
        "epochs of a summary alone",
        reported(with_facts(V1, epochs=()), au=(0.95,) * 4, samples_per_s=()),
        {"job": "invalid", "summary": "note"},
    ),
    (
        "no configuration",
        changed(V1, settings={}, overrides={}),
        {"overrides": "not_checked", "comparability_class": "not_checked"},
    ),
)


@pytest.mark.parametrize(
    ("published", "expected"),
    [change[1:] for change in TRAINING_CHANGES],
    ids=[change[0] for change in TRAINING_CHANGES],
)
def test_a_changed_training_set_is_found_by_its_rules_alone(
    published: PublishedSet, expected: Mapping[str, str]
) -> None:
    assert standings(published) == expected


SIZE = 112_425_623_552
SLOW, FAST = Operation(seconds=(8.0,)), Operation(seconds=(2.0,), device_bytes=SIZE // 2)


def two_commands(gap_s: float) -> PublishedSet:
    """Return a set whose reads are of a command of their own."""
    (run,) = CHECKPOINTS.runs
    (write,) = with_facts(CHECKPOINTS, reads=(), reported_read_bytes_per_s=None).runs
    (read,) = with_facts(CHECKPOINTS, writes=(), reported_write_bytes_per_s=None).runs
    start_s = (run.ended_s or 0) + gap_s
    later = {"name": "later", "started_s": start_s, "ended_s": start_s + 300}
    return CHECKPOINTS.model_copy(update={"runs": (write, read.model_copy(update=later))})


def loads(*fast: Operation) -> PublishedSet:
    return with_facts(
        CHECKPOINTS, reads=(SLOW,) * (10 - len(fast)) + fast, reported_read_bytes_per_s=None
    )


OTHER_CHANGES: tuple[tuple[str, PublishedSet, Mapping[str, str]], ...] = (
    (
        "few writes",
        with_facts(CHECKPOINTS, writes=(SLOW,) * 9, reported_write_bytes_per_s=None),
        {"checkpoint_count": "invalid"},
    ),
    ("no fsync", with_facts(CHECKPOINTS, fsync=False), {"fsync": "invalid"}),
    ("unknown fsync", with_facts(CHECKPOINTS, fsync=None), {"fsync": "not_checked"}),
    (
        "no fsync in the settings",
        changed(
            with_facts(CHECKPOINTS, fsync=False),
            settings={**CHECKPOINT_SETTINGS, "checkpoint.fsync": False},
        ),
        {"fsync": "invalid", "comparability_class": "invalid"},
    ),
    ("no pause", with_facts(CHECKPOINTS, interval_s=0.0), {"checkpoint_interval": "invalid"}),
    ("16 processes", with_facts(CHECKPOINTS, ranks=16), {"processes": "invalid"}),
    (
        "4 processes a host",
        changed(CHECKPOINTS, host_memory_bytes=(SIZE // 6,) * 2),
        {"processes_per_host": "invalid"},
    ),
    (
        "much memory",
        changed(CHECKPOINTS, host_memory_bytes=(SIZE // 2,)),
        {"cache_rule": "warning"},
    ),
    (
        "unknown memory",
        changed(CHECKPOINTS, host_memory_bytes=(None,)),
        {"cache_rule": "not_checked"},
    ),
    (
        "another model",
        with_facts(CHECKPOINTS, model="llama3-13b"),
        {"processes": "invalid", "comparability_class": "invalid"},
    ),
    (
        "the parameters of a command",
        changed(CHECKPOINTS, overrides={"checkpoint.fsync": "False"}),
        {"overrides": "invalid"},
    ),
    ("soon read", two_commands(20), {}),
    ("late read", two_commands(40), {"read_start": "warning"}),
    ("cached loads", loads(FAST, FAST, FAST), {"loads": "note"}),
    ("fast loads of the device", loads(FAST.model_copy(update={"device_bytes": SIZE})), {}),
    (
        "fast loads by network",
        loads(FAST.model_copy(update={"device_bytes": None})),
        {"loads": "not_checked"},
    ),
    (
        "two options",
        with_facts(CACHE, options=OPTIONS[:2]),
        {"cache_options": "invalid"},
    ),
    ("two trials", with_facts(CACHE, trials=2), {"cache_trials": "invalid"}),
    (
        "an option from memory",
        with_facts(
            CACHE,
            options=(
                *OPTIONS[:2],
                OPTIONS[2].model_copy(update={"read_bytes_per_s": 0.0}),
            ),
        ),
        {"cache_reads": "invalid"},
    ),
    (
        "four runs",
        VECTORS.model_copy(update={"runs": VECTORS.runs[:4]}),
        {"vector_runs": "invalid"},
    ),
    ("no recall", with_facts(VECTORS, 2, recall=None), {"recall": "invalid"}),
    ("a low recall", with_facts(VECTORS, 2, recall=0.2097), {"low_recall": "note"}),
    ("another database", with_facts(VECTORS, database="pgvector"), {"database": "open"}),
    ("another index", with_facts(VECTORS, index="IVF_FLAT"), {"index": "open"}),
)


@pytest.mark.parametrize(
    ("published", "expected"),
    [change[1:] for change in OTHER_CHANGES],
    ids=[change[0] for change in OTHER_CHANGES],
)
def test_another_changed_set_is_found_by_its_rules_alone(
    published: PublishedSet, expected: Mapping[str, str]
) -> None:
    assert standings(published) == expected


def test_a_rate_is_held_against_the_formulas_that_give_it_or_those_of_its_edition() -> None:
    def with_slow_first_step(run: PublishedRun) -> PublishedRun:
        blocks = run.facts.epochs[0]  # type: ignore[union-attr]
        epochs = (tuple(each.model_copy(update={"first_step_s": 30.0}) for each in blocks),) * 5
        return run.model_copy(update={"facts": run.facts.model_copy(update={"epochs": epochs})})

    published = with_runs(reported(V1, au_mean=None), with_slow_first_step)
    assert not list(notes(published, "v2.0"))
    nameless = published.model_copy(update={"edition": None})
    assert not list(notes(nameless, "v2.0"))
    # v2.0 has no figure without step lists. The settings are of a class of v1.0, which has one.
    of_blocks = with_runs(
        reported(nameless, samples_per_s_mean=50.0, samples_per_s=(), nominal_bytes_per_s=None),
        without_steps,
    )
    assert {each.rule for each in notes(of_blocks, "v1.0")} == {"recomputed", "report"}
    assert {each.rule for each in notes(of_blocks, "v2.0")} == {"report"}


def test_unknown_checkpoints_are_not_counted_as_none() -> None:
    unknown = with_facts(CHECKPOINTS, writes=(), reads=())
    assert standings(unknown)["checkpoint_count"] == "not_checked"


def test_only_unet3d_may_read_directly() -> None:
    direct = changed(V3, overrides={"workload": "unet3d_b200", "reader.odirect": "True"})
    assert "overrides" not in found(direct)
    other = changed(with_facts(direct, model="retinanet"))
    finding = found(other)["overrides"]
    assert (finding.standing, finding.sentence) == (
        "invalid",
        "reader.odirect True must not be changed.",
    )


def test_sentences_have_the_figures() -> None:
    gap = found(changed(V1, 4, started_s=2e9, ended_s=2e9))["consecutive"]
    assert "s without a run before run4" in gap.sentence
    files = found(changed(V1, 1, host_memory_bytes=hosts_of(512)))["data_set_size"]
    assert files.sentence.startswith("run1: 14000 files per epoch, at least 37")
    assert (files.id, files.figures["got"]) == ("3", 14000)
    override = found(changed(V1, 3, overrides=overriding("train.seed", "1")))["overrides"]
    assert override.sentence == "run3: train.seed must not be changed."
    cached = found(loads(FAST))["loads"]
    assert "1 of 10 loads took at most 2.00 s, the median 8.00 s" in cached.sentence
    assert cached.id == "wl-loads"


def test_the_official_sizing_gives_a_step_less() -> None:
    sized: dict[str, Any] = {
        "model": "resnet50",
        "batch_samples": 400,
        "samples_per_file": 1251,
        "record_bytes": 114660.07,
    }
    for accelerators, files, steps in ((1, 159, 497), (3, 479, 499)):
        published = with_facts(V1, accelerators=accelerators, file_count=files, **sized)
        warned = found(changed(published, host_memory_bytes=hosts_of(1)))["steps"]
        assert (warned.standing, warned.figures["got"]) == ("warning", steps)
        missing = with_facts(published, file_count=files - 1)
        assert found(changed(missing, host_memory_bytes=hosts_of(1)))["steps"].standing == "invalid"


def test_only_what_a_division_does_not_allow_fails() -> None:
    by_open = changed(V1, overrides=overriding("reader.data_loader", "dali"))
    finding = found(by_open)["overrides"]
    assert (finding.fails("closed"), finding.fails("open"), finding.fails(None)) == (
        True,
        False,
        False,
    )
    for rule, published in (("data_set_size", changed(V1, host_memory_bytes=hosts_of(512))),):
        assert found(published)[rule].fails("open")
    assert not found(changed(V1, host_memory_bytes=hosts_of(FIFTH_GIB * 1.002)))[
        "data_set_size"
    ].fails("closed")


def test_copies_are_found_in_other_sets() -> None:
    other = V1.model_copy(update={"path": "closed/org/results/other"})
    assert copies([V1, V3]) == {}
    assert set(copies([V1, V3, other])) == {0, 2}
    sentence = copies([V1, V3, other])[0].sentence
    assert "closed/org/results/other/run0" in sentence


def test_classes_have_the_hashes_of_mlperfs_own_table() -> None:
    assert core_config(V1_SETTINGS) == "f4d46006aa421634"
    assert core_config(V3.runs[0].settings) == "0d3ad0dec188becd"
    assert core_config(CHECKPOINT_SETTINGS) == "68df04b7240e3fb0"
    as_text = {name: str(value) for name, value in V1_SETTINGS.items()}
    assert core_config(as_text) == core_config(V1_SETTINGS)
    assert core_config({}) is None


@pytest.mark.parametrize(
    ("published", "hint", "name", "differing"),
    [
        (V1, None, "v1.0", ""),
        (changed(V1, settings={}), None, "v2.0", ""),
        (changed(V1, settings={}), "v1.0", "v1.0", ""),
        (V1, "v3.0", "v1.0", ""),
        (V3, None, "v3.0", ""),
        (three_epochs(V1), None, None, "epochs 3 instead of 5"),
        (
            with_facts(V1, accelerator="mi355"),
            None,
            None,
            "accelerator mi355 instead of b200",
        ),
        (with_facts(V1, model="bert"), None, None, "no edition has bert"),
        (CHECKPOINTS, None, "v3.0", ""),
        (with_facts(CHECKPOINTS, model="llama3-70b"), None, "v2.0", ""),
        (with_facts(CHECKPOINTS, ranks=9), None, None, "9 processes instead of 8"),
        (CACHE, None, "v3.0", ""),
        (VECTORS, None, "v3.0", ""),
    ],
)
def test_the_edition_is_that_of_the_parameters(
    published: PublishedSet, hint: str | None, name: str | None, differing: str
) -> None:
    found, differences = nearest_edition(published.facts, published.runs[0].settings, hint)
    assert ", ".join(differences) == differing
    assert name in (found, None)
