"""dlio-benchmark's output files: ``summary.json`` and ``RANK_output.json``.

As release 2.0.0 writes them (``dlio_benchmark/utils/statscounter.py``). An epoch without
checkpoints is one block, ``block1``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError

from wattload.core.errors import RunError
from wattload.core.units import MIB
from wattload.loaders.samples import Reported, TrainedRank, Training

SUMMARY = "summary.json"


class _Metric(BaseModel):
    """What of the summary's ``metric`` is read: a figure an epoch, and a mean over them."""

    model_config = ConfigDict(strict=True)

    train_au_percentage: list[FiniteFloat]
    train_throughput_samples_per_second: list[FiniteFloat]
    train_io_mean_MB_per_second: FiniteFloat  # noqa: N815 - the program's name

    def reported(self) -> list[Reported]:
        """Return each epoch's figures in SI units; what it calls MB are MiB."""
        return [
            Reported(
                au=percentage / 100,
                samples_per_s=samples_per_s,
                nominal_bytes_per_s=self.train_io_mean_MB_per_second * MIB,
            )
            for percentage, samples_per_s in zip(
                self.train_au_percentage, self.train_throughput_samples_per_second, strict=True
            )
        ]


class _Times(BaseModel):
    block1: list[FiniteFloat]


class _Throughput(BaseModel):
    block1: Annotated[FiniteFloat, Field(gt=0, strict=True)]


class _Epoch(BaseModel):
    load: _Times
    proc: _Times
    throughput: _Throughput


ModelT = TypeVar("ModelT", bound=BaseModel)

_DOCUMENT = TypeAdapter(dict[str, Any])


def read_output(folder: Path, training: Training) -> list[tuple[Sequence[TrainedRank], Reported]]:
    """Return each epoch's times, rank by rank, and the figures that the program reports of it.

    Raises:
        RunError: a file is missing, is no JSON, or lacks what a finished run has.
    """
    reported = _member(folder / SUMMARY, "metric", _Metric).reported()
    if len(reported) != training.epochs:
        raise RunError(
            f"{folder / SUMMARY} of dlio-benchmark has {len(reported)} epochs; "
            f"expected {training.epochs}"
        )
    return [
        (
            [
                _trained(folder / f"{rank}_output.json", epoch, training)
                for rank in range(training.accelerators)
            ],
            figures,
        )
        for epoch, figures in enumerate(reported, 1)
    ]


def _trained(path: Path, number: int, training: Training) -> TrainedRank:
    """Return the times of a rank in one epoch, after checking that it made every step."""
    epoch = _member(path, str(number), _Epoch)
    load, processed = epoch.load.block1, epoch.proc.block1
    if {len(load), len(processed)} != {training.steps}:
        raise RunError(
            f"{path} of dlio-benchmark has {len(load)} load times and {len(processed)} step "
            f"times; expected {training.steps} of each"
        )
    return TrainedRank(
        # The block's length is nowhere; its throughput is steps x batch / (end - start).
        duration_s=training.steps * training.samples.batch_samples / epoch.throughput.block1,
        load_s=tuple(load),
        processed_s=tuple(processed),
    )


def _member(path: Path, name: str, model: type[ModelT]) -> ModelT:
    """Return one member of a file's JSON object."""
    try:
        return model.model_validate(_DOCUMENT.validate_json(path.read_bytes()).get(name))
    except OSError as error:
        raise RunError(
            f"dlio-benchmark ended without {path.name} ({error.strerror}); its log is in "
            f"{path.parent}"
        ) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (name, *first["loc"])))
        raise RunError(f"{path} of dlio-benchmark, {where}: {first['msg']}") from error
