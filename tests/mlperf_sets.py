"""Published sets of MLPerf Storage that keep every rule, to be changed by tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wattload.core.base_models import Frozen
from wattload.core.mlperf import formulas
from wattload.core.mlperf.published import (
    CacheFacts,
    CacheOption,
    CheckpointFacts,
    Operation,
    PublishedRun,
    PublishedSet,
    RankBlock,
    ReportedSet,
    ReportedTraining,
    TrainingFacts,
    VectorFacts,
)
from wattload.core.units import GIB

STEPS, STEP_S, ACCELERATORS, HOSTS = 500, {"h100": 0.323, "b200": 0.162}, 2, 2
MEMORY_BYTES = 170 * GIB
V1_SETTINGS: dict[str, bool | int | float | str | None] = {
    "model": "unet3d",
    "framework": "pytorch",
    "workflow.generate_data": False,
    "workflow.train": True,
    "workflow.checkpoint": True,
    "workflow.profiling": False,
    "dataset.data_folder": "/data/unet3d",
    "dataset.format": "npz",
    "dataset.num_samples_per_file": 1,
    "dataset.record_length": 146600628,
    "dataset.record_length_stdev": 68341808,
    "dataset.record_length_resize": 2097152,
    "reader.data_loader": "pytorch",
    "reader.batch_size": 7,
    "reader.read_threads": 8,
    "reader.file_shuffle": "seed",
    "reader.sample_shuffle": "seed",
    "train.epochs": 5,
    "train.computation_time": 0.323,
    "checkpoint.checkpoint_folder": "/data/checkpoints",
    "checkpoint.checkpoint_after_epoch": 5,
    "checkpoint.epochs_between_checkpoints": 2,
    "checkpoint.model_size": 499153191,
    "metric.au": 0.9,
}
_RENAMED = {
    "model": "model.name",
    "dataset.record_length": "dataset.record_length_bytes",
    "dataset.record_length_stdev": "dataset.record_length_bytes_stdev",
    "dataset.record_length_resize": "dataset.record_length_bytes_resize",
    "checkpoint.model_size": "model.model_size",
}
V3_SETTINGS = {
    **{_RENAMED.get(name, name): value for name, value in V1_SETTINGS.items()},
    "model.type": "cnn",
    "workflow.checkpoint": False,
    "train.computation_time": 0.162,
}
del V3_SETTINGS["workflow.profiling"]
CHECKPOINT_SETTINGS: dict[str, bool | int | float | str | None] = {
    "model.name": "llama_8b",
    "model.type": "transformer",
    "model.num_layers": 32,
    "model.model_datatype": "fp16",
    "model.optimizer_datatype": "fp32",
    "model.parallelism.pipeline": 1,
    "model.parallelism.tensor": 1,
    "model.parallelism.zero_stage": 3,
    "model.transformer.vocab_size": 128256,
    "model.transformer.hidden_size": 4096,
    "model.transformer.ffn_hidden_size": 14336,
    "model.transformer.num_attention_heads": 32,
    "model.transformer.num_kv_heads": 8,
    "framework": "pytorch",
    "workflow.generate_data": False,
    "workflow.train": False,
    "workflow.checkpoint": True,
    "checkpoint.checkpoint_folder": "/data/llama3-8b",
    "checkpoint.time_between_checkpoints": 5,
    "checkpoint.num_checkpoints_write": 10,
    "checkpoint.num_checkpoints_read": 10,
    "checkpoint.fsync": True,
}


def training_facts(accelerator: str, seconds: float, edition: str) -> TrainingFacts:
    """Return the facts of a run whose blocks take this long, and what its edition reports of it."""
    step_s = STEP_S[accelerator]
    block = RankBlock(
        rank=0,
        duration_s=seconds,
        steps=2 * STEPS,
        first_step_s=1.0,
        first_compute_s=step_s,
        compute_s=2 * STEPS * step_s,
    )
    ranks = tuple(block.model_copy(update={"rank": rank}) for rank in range(ACCELERATORS))
    facts = TrainingFacts(
        model="unet3d",
        accelerator=accelerator,
        accelerators=ACCELERATORS,
        file_count=2 * STEPS * ACCELERATORS * 7,
        samples_per_file=1,
        record_bytes=146600628,
        batch_samples=7,
        step_s=step_s,
        epochs=(ranks,) * 5,
    )
    rate, au = formulas.samples_per_s(facts, edition).value, formulas.au(facts).value
    assert rate is not None
    assert au is not None
    reported = ReportedTraining(
        au=(au,) * 5,
        au_mean=au,
        samples_per_s=(rate,) * 5,
        samples_per_s_mean=rate,
        nominal_bytes_per_s=rate * 146600628,
    )
    return facts.model_copy(update={"reported": reported})


def training_set(edition: str = "v1.0") -> PublishedSet:
    """Return the runs of unet3d that make a result, a warm-up before them since v2.0."""
    accelerator = "h100" if edition == "v1.0" else "b200"
    seconds = 2 * STEPS * STEP_S[accelerator] / 0.95
    runs = []
    started_s = 1e9
    for number in range(5 if edition == "v1.0" else 6):
        took_s = seconds + number
        facts = training_facts(accelerator, took_s, edition)
        run = PublishedRun(
            name=f"run{number}",
            started_s=started_s,
            ended_s=started_s + 5 * took_s,
            host_memory_bytes=(MEMORY_BYTES,) * HOSTS,
            settings=V1_SETTINGS if edition == "v1.0" else V3_SETTINGS,
            overrides={
                "workload": f"unet3d_{accelerator}",
                "workflow.train": "True",
                "dataset.num_files_train": str(facts.file_count),
                "reader.read_threads": "8",
            },
            facts=facts,
            sources=source(f"{edition}/run{number}/summary.json"),
        )
        started_s += 5 * took_s + 60
        runs.append(run)
    rates: dict[str, Any] = {run.name: run.facts.reported.samples_per_s_mean for run in runs}  # type: ignore[union-attr]
    return PublishedSet(
        tree="results",
        path="closed/org/results/system/unet3d",
        edition=edition,
        division="closed",
        organisation="org",
        system="system",
        runs=tuple(runs),
        reported=ReportedSet(
            runs=rates,
            samples_per_s_mean=sum(rates.values()) / len(rates),
        )
        if edition == "v1.0"
        else None,
    )


def hosts_of(memory_gib: float, known: int = HOSTS) -> tuple[int | None, ...]:
    """Return hosts of a set with this memory, unknown in all but some."""
    memory = round(memory_gib * GIB)
    return tuple(memory if n < known else None for n in range(HOSTS))


def source(path: str) -> dict[str, str]:
    return {path: path}


def _one(name: str, facts: Any, **more: Any) -> PublishedSet:
    run = PublishedRun(
        name="20260721_000424", started_s=1e9, ended_s=1e9 + 300, facts=facts, **more
    )
    return PublishedSet(
        tree="results",
        path=f"closed/org/results/system/{name}",
        edition="v3.0",
        division="closed",
        organisation="org",
        system="system",
        runs=(run,),
    )


def checkpoint_set() -> PublishedSet:
    """Return one command that writes and reads 10 checkpoints of 8b."""
    size = 112_425_623_552
    facts = CheckpointFacts(
        model="llama3-8b",
        ranks=8,
        checkpoint_bytes=size,
        fsync=True,
        interval_s=5.0,
        writes=(Operation(seconds=(6.0,) * 8),) * 10,
        reads=(Operation(seconds=(8.0,) * 8, device_bytes=size),) * 10,
        reported_write_bytes_per_s=size / 6.0,
        reported_read_bytes_per_s=size / 8.0,
    )
    return _one(
        "checkpointing/llama3-8b",
        facts,
        host_memory_bytes=(size // 3,),
        settings=CHECKPOINT_SETTINGS,
        overrides={"workload": "llama3_8b", "checkpoint.num_checkpoints_read": "10"},
    )


def cache_set() -> PublishedSet:
    option = CacheOption(
        option="1",
        read_bytes_per_s=1e9,
        written_bytes_per_s=1e8,
        tokens_per_s=100.0,
    )
    options = tuple(option.model_copy(update={"option": name}) for name in ("1", "2", "3"))
    facts = CacheFacts(model="llama3.1-8b", ranks=1, trials=3, options=options)
    return _one("kv_cache/llama3.1-8b", facts)


def vector_set() -> PublishedSet:
    facts = VectorFacts(
        database="milvus",
        index="DISKANN",
        vectors=1_000_000,
        dimensions=1536,
        queries=9_960,
        seconds=60.0,
        queries_per_s=166.0,
        recall=0.95,
        latency_p99_s=0.02,
    )
    one = _one("vector_database/DISKANN", facts)
    runs = tuple(
        one.runs[0].model_copy(update={"name": f"run{n}", "started_s": n * 1e3, "ended_s": n * 1e3})
        for n in range(5)
    )
    return one.model_copy(update={"runs": runs})


def changed(published: PublishedSet, *which: int, **update: Any) -> PublishedSet:
    """Return a set with other fields of its runs, or of the runs at some indices."""
    return with_runs(published, lambda run: run.model_copy(update=update), *which)


def with_facts(published: PublishedSet, *which: int, **update: Any) -> PublishedSet:
    """Return a set with other facts of its runs, or of the runs at some indices."""
    return with_runs(
        published,
        lambda run: run.model_copy(update={"facts": run.facts.model_copy(update=update)}),
        *which,
    )


def slower(published: PublishedSet, *which: int, are_reported: bool) -> PublishedSet:
    """Return a set of runs whose blocks take twice as long, if reported in their summaries too."""

    def change(run: PublishedRun) -> PublishedRun:
        facts = run.facts
        assert isinstance(facts, TrainingFacts)
        seconds = 2 * facts.epochs[0][0].duration_s
        slow = training_facts(facts.accelerator or "", seconds, published.edition or "")
        if not are_reported:
            slow = slow.model_copy(update={"reported": facts.reported})
        return run.model_copy(update={"facts": slow})

    return with_runs(published, change, *which)


def with_runs(
    published: PublishedSet, change: Callable[[PublishedRun], Frozen], *which: int
) -> PublishedSet:
    runs = [
        change(run) if not which or index in which else run
        for index, run in enumerate(published.runs)
    ]
    return published.model_copy(update={"runs": tuple(runs)})
