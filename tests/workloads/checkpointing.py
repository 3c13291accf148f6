"""Checkpoints of a few megabytes, for the tests of the checkpoint workload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.context import Context, ThreadCommunicator, directory_target
from tests.records import Scenario, make_run
from wattload.core.record.phase import PhaseSpan
from wattload.core.record.results import Check
from wattload.core.record.run import RunRecord
from wattload.core.workload import Accelerator, Outcome
from wattload.loaders.checkpoint_store import CheckpointLoader
from wattload.loaders.data.data_folder import list_folders
from wattload.loaders.dcp import config as dcp_config
from wattload.loaders.direct import config as direct_config
from wattload.loaders.torch import config as torch_config
from wattload.results.checkpoint.facts import CheckpointFacts
from wattload.results.reading import checks_of, judged, metrics_of, run_of
from wattload.workloads.checkpoint.config import Config
from wattload.workloads.checkpoint.workload import Checkpoint

RANK_BYTES = 4_000_004
STEP_S = 0.002
BESIDE_STEPS = 3
BESIDE: dict[str, Any] = {"mode": "async", "interval_s": BESIDE_STEPS * STEP_S}
DIRECT = direct_config.Config(block_bytes=256 << 10, queue_depth=4)
LOADERS: dict[str, CheckpointLoader] = {
    "direct": DIRECT,
    "torch": torch_config.Config(bucket_bytes=1 << 20),
    "dcp": dcp_config.Config(tensor_bytes=1 << 20),
}


def settings(**changed: Any) -> Config:
    """Return settings of three small checkpoints."""
    return Config(**{"checkpoint_count": 3, "shrink_bytes": RANK_BYTES} | changed)


def made(loader: CheckpointLoader = DIRECT, **changed: Any) -> Checkpoint:
    """Return a workload of them."""
    return Checkpoint(settings(**changed), loader, Accelerator(step_s={"checkpoint": STEP_S}))


def run(
    workload: Checkpoint,
    context: Context,
    ranks: Sequence[Context] = (),
    *,
    verify: bool = True,
) -> tuple[RunRecord, dict[str, Check]]:
    """Return a record with what the run found, and all of its checks; of all ranks if given."""
    workload.plan(context)
    workload.prepare(context)
    outcome = workload.run(context)
    found = workload.verify(context) if verify else ()
    record = record_of(workload, outcome, ranks or [context])
    checks = (*outcome.checks, *found, *checks_of(record))
    return record, {check.name: check for check in checks}


def record_of(workload: Checkpoint, outcome: Outcome, ranks: Sequence[Context]) -> RunRecord:
    """Return a made-up record with the spans, facts and figures of a run."""
    record, _ = make_run(Scenario(workload="checkpoint"))
    facts = {} if outcome.facts is None else outcome.facts.model_dump(mode="json")
    record = record.model_copy(
        update={
            "workload": record.workload.model_copy(
                update={"facts": facts, "remarks": tuple(outcome.remarks)}
            ),
            "config": {"workload": asdict(workload.config)},
            "spans": tuple(span for context in ranks for span in _spans(context)),
            "latencies": tuple(outcome.latencies),
            "metrics": (),
        }
    )
    return record.model_copy(update={"metrics": metrics_of(record)})


def _spans(context: Context) -> Iterator[PhaseSpan]:
    for phase in context.phases:
        yield PhaseSpan(
            name=phase.name,
            parent=phase.parent,
            host="box",
            rank=context.communicator.rank,
            timed=phase.timed,
            start_ns=phase.start_ns,
            end_ns=phase.end_ns,
            read_bytes=phase.read_bytes,
            written_bytes=phase.written_bytes,
            operations=phase.operations,
            cpu_s=0.0,
        )


def facts_of(record: RunRecord) -> CheckpointFacts:
    found = run_of(record)
    assert found is not None
    facts: CheckpointFacts = found.facts
    return facts


def value(record: RunRecord, name: str) -> float:
    metric = judged(record).metric(name)
    assert metric is not None
    assert metric.value is not None
    return metric.value


def remains(target: Path) -> list[Path]:
    """Return the files of data that lie on a target; the folders' own begin with a dot."""
    found = sorted((target / "wattload-data").rglob("*"))
    return [path for path in found if path.is_file() and not path.name.startswith(".")]


def data_folder(context: Context, target: int = 0) -> Path:
    path = context.targets[target].path
    assert path is not None
    (folder,) = list_folders(path)
    return folder.path


def ranks(path: Path, count: int, targets: int = 1) -> list[Context]:
    made_targets = []
    for index in range(targets):
        (path / str(index)).mkdir()
        made_targets.append(directory_target(path / str(index), index=index))
    return [
        Context(targets=tuple(made_targets), communicator=communicator)
        for communicator in ThreadCommunicator.world(count)
    ]


def interrupt(context: Context, after_bytes: int) -> None:
    """Have the first count beyond ``after_bytes`` interrupt the run, on the thread that counts."""
    advance = context.progress.advance

    def counted(*, read_bytes: int = 0, written_bytes: int = 0) -> None:
        advance(read_bytes=read_bytes, written_bytes=written_bytes)
        if sum(context.progress.moved_bytes) > after_bytes:
            raise KeyboardInterrupt

    context.progress.advance = counted  # type: ignore[method-assign]  # a spy
