"""What a run of dlio-benchmark amounts to: its files, and what its processes told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from wattload.core.errors import RunError
from wattload.core.io import DataPath, IOResult
from wattload.core.units import NS_PER_S
from wattload.loaders.dlio.conductor import Witness
from wattload.loaders.dlio.output import Output, read_output
from wattload.loaders.sampleharness import TrainedEpoch, Training, TrainingResult


def result_of(
    training: Training,
    output: Path,
    witnesses: Sequence[Witness],
    *,
    path: DataPath,
    command: Sequence[str],
    journal: Path | None,
) -> TrainingResult:
    """Return the result of a run that has ended well; ``output`` is DLIO's own folder.

    Raises:
        RunError: a file of DLIO's is missing or malformed, or a process did not tell of an epoch.
    """
    batch_samples = training.samples.batch_samples
    read = read_output(
        output,
        ranks=training.accelerators,
        epochs=training.epochs,
        steps=training.steps,
        batch_samples=batch_samples,
    )
    _require_all(witnesses, training)
    epochs = [
        [_trained(read, training, witness, (epoch, rank)) for rank in range(training.accelerators)]
        for epoch, witness in enumerate(witnesses)
    ]
    noted = read_journal(journal) if journal is not None else None
    if noted is not None:
        told = {"engine": ", ".join(noted.engines), "remarks": noted.remarks}
        path = path.model_copy(update=told)
    return TrainingResult(
        io=_totals(epochs, training, path),
        reported=read.metric,
        recomputed={
            "train_au_percentage": read.au_percentage(),
            "train_throughput_samples_per_second": read.samples_per_s(),
        },
        version=version("dlio-benchmark"),
        command=tuple(command),
        epochs=epochs,
        plugged_bytes=noted.read_bytes if noted is not None else None,
    )


@dataclass(frozen=True, slots=True)
class Journal:
    """What our reader noted inside the program: bytes read, and by which engines."""

    read_bytes: int
    engines: tuple[str, ...]
    remarks: tuple[str, ...]


def read_journal(path: Path) -> Journal:
    """Return what our reader noted; nothing where it was never made."""
    try:
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        lines = []
    opened = [line for line in lines if "engine" in line]
    return Journal(
        read_bytes=sum(int(line["read_bytes"]) for line in lines if "read_bytes" in line),
        engines=tuple(dict.fromkeys(line["engine"] for line in opened)),
        remarks=tuple(dict.fromkeys(said for line in opened for said in line["remarks"])),
    )


def _require_all(witnesses: Sequence[Witness], training: Training) -> None:
    for epoch, witness in enumerate(witnesses, 1):
        batches = [witness.batches[rank] for rank in range(training.accelerators)]
        if len(witness.spent) != training.accelerators or set(batches) != {training.steps}:
            raise RunError(
                f"dlio-benchmark told of {batches} batches per process in epoch {epoch}, where "
                f"{training.accelerators} processes should have had {training.steps} each; "
                "dlio-benchmark 2.0.0 is what this suite works with"
            )


def _trained(
    output: Output, training: Training, witness: Witness, place: tuple[int, int]
) -> TrainedEpoch:
    """Return one epoch on one rank; ``place`` are their numbers."""
    epoch, rank = place
    times, spent, done = output.ranks[rank][epoch], witness.spent[rank], witness.done[rank]
    steps = zip(times.processed_s, times.load_s, strict=True)
    return TrainedEpoch(
        duration_s=(done["end_ns"] - done["begin_ns"]) / NS_PER_S,
        load_s=times.load_s,
        compute_s=tuple(processed_s - load_s for processed_s, load_s in steps),
        processed_s=times.processed_s,
        read_bytes=training.epoch_bytes_read(epoch, rank),
        cpu_s=spent["cpu_s"],
        called_bytes=spent["called_bytes"],
        storage_bytes=spent["storage_bytes"],
        peak_bytes=spent["peak_bytes"],
    )


def _totals(
    epochs: Sequence[Sequence[TrainedEpoch]], training: Training, path: DataPath
) -> IOResult:
    each = [trained for epoch in epochs for trained in epoch]
    return IOResult(
        moved_bytes=sum(trained.read_bytes for trained in each),
        operation_count=len(each) * training.steps * training.samples.batch_samples,
        seconds=sum(max(trained.duration_s for trained in epoch) for epoch in epochs),
        cpu_s=sum(trained.cpu_s for trained in each),
        path=path,
    )
