"""The editions of MLPerf Storage: what each demands of a job, one YAML file in ``editions/`` each.

A run has no edition: its facts are held against any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import Field

from wattload.core.base_models import Frozen

LAST_EDITION = "v3.0"


class Accelerator(Frozen):
    """An emulated accelerator: ``computation_time`` of a step, and its batch."""

    step_s: float = Field(ge=0)
    batch_samples: int = Field(ge=1)


class TrainingModel(Frozen):
    """The published job of one training workload; sizes are payload bytes of a record.

    ``resize_bytes`` is what of each record reaches the accelerator, ``None`` for all of it. ``au``
    is the least accelerator utilisation, in [0, 1].
    """

    record_bytes: float = Field(gt=0)
    record_stdev_bytes: float = Field(default=0, ge=0)
    resize_bytes: int | None = None
    record_format: str
    samples_per_file: int = Field(ge=1)
    epochs: int = Field(ge=1)
    au: float = Field(gt=0, le=1)
    accelerators: Mapping[str, Accelerator]


class Edition(Frozen):
    """One edition: its training workloads by model.

    ``steps_left_out`` of each block don't count in its throughput; if any, its first step's time
    does not either.
    """

    name: str
    steps_left_out: int = Field(ge=0)
    training: Mapping[str, TrainingModel]


@cache
def editions() -> Mapping[str, Edition]:
    """Return all editions by name, the oldest first."""
    import yaml

    found = (
        Edition.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
        for file in sorted((Path(__file__).parent / "editions").glob("*.yaml"))
    )
    return {edition.name: edition for edition in found}


def training_model(model: str, accelerator: str | None = None) -> tuple[str, TrainingModel] | None:
    """Return the last edition with a model, and with the accelerator if one is named; its job.

    An accelerator that no edition has gets the last edition of the model; ``None`` without one.
    """
    having = [each for each in editions().values() if model in each.training]
    exact = [each for each in having if accelerator in each.training[model].accelerators]
    for edition in reversed(exact or having):
        return edition.name, edition.training[model]
    return None
