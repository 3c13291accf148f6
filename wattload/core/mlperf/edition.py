"""The editions of MLPerf Storage: what each demands of a job, one YAML file in ``editions/`` each.

A run has no edition: its facts are held against any of them.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from pydantic import Field

from wattload.core.base_models import Frozen
from wattload.core.mlperf.published import (
    AnyFacts,
    CheckpointFacts,
    Division,
    Setting,
    TrainingFacts,
)

LAST_EDITION = "v3.0"

Settings = Mapping[str, Setting]

_CORE = re.compile(
    r"framework|metric\.au|(model|workflow|checkpoint)\..*|train\.total_training_steps|"
    r"dataset\.(format|num_samples_per_file|record_length(_bytes)?(_stdev|_resize)?)|"
    r"reader\.(data_loader|batch_size|shuffle_size|(file|sample)_shuffle)|"
    r"train\.(epochs|computation_time(_stdev)?)"
)
_TUNABLE = ("checkpoint.checkpoint_folder", "checkpoint.num_checkpoints_")
"""The settings that define a workload, without what any run may choose: mlpstorage's allow lists
training@1 and checkpointing@1 (``rules/core_config_keys.yaml`` @9cf5d20)."""


OPEN_PARAMETERS = frozenset(
    {"framework", "dataset.format", "dataset.num_samples_per_file", "reader.data_loader"}
)
"""What a training command in OPEN may change besides what it may in CLOSED."""
CHECKPOINT_PARAMETERS = frozenset(
    f"checkpoint.{name}"
    for name in ("checkpoint_folder", "mode", "num_checkpoints_write", "num_checkpoints_read")
) | {"model.parallelism.data"}
"""What a command of checkpoints may change, or MLPerf's tool changes for it."""
TOOL_PARAMETERS = (
    *("workload", "workflow.", "profiling.", "hydra.", "output.", "dataset.skip_listing"),
    *("dataset.listing_validation_interval", "dataset.num_files_generated"),
    *("dataset.total_disk_bytes", "storage.storage_options.", "storage.s3_force_path_style"),
)
"""How parameters begin that MLPerf's tools set (``TOOL_INJECTED_PARAMS`` @1bd3002), not users."""


class Accelerator(Frozen):
    """An emulated accelerator: ``computation_time`` of a step, and its batch.

    ``core_configs`` are the hashes of its comparability classes in mlpstorage's
    ``rules/editions.yaml`` @0e57fc4.
    """

    step_s: float = Field(ge=0)
    batch_samples: int = Field(ge=1)
    core_configs: tuple[str, ...] = ()


class TrainingModel(Frozen):
    """The published job of one training workload; sizes are payload bytes of a record.

    ``resize_bytes`` is what of each record reaches the accelerator, ``None`` for all of it. ``au``
    is the least accelerator utilisation, in [0, 1]. ``framework`` is also its data loader.
    """

    record_bytes: float = Field(gt=0)
    record_stdev_bytes: float = Field(default=0, ge=0)
    resize_bytes: int | None = None
    record_format: str
    framework: str = "pytorch"
    samples_per_file: int = Field(ge=1)
    epochs: int = Field(ge=1)
    au: float = Field(gt=0, le=1)
    accelerators: Mapping[str, Accelerator]


class CheckpointModel(Frozen):
    """The published checkpoints of one model; ``subset_ranks`` may write a part of them."""

    ranks: int = Field(ge=1)
    subset_ranks: int | None = None
    core_configs: tuple[str, ...] = ()


class Edition(Frozen):
    """One edition: its workloads by model, and its rules.

    ``steps_left_out`` of each block don't count in its throughput; if any, its first step's time
    does not either. ``rules`` has the rules that are in its ``text``, each with its id or section
    there; a gap between runs is one only where ``gap_is_limited``, else the text just says that
    runs follow each other. Parameters are what a submission may change, by division.
    """

    name: str
    text: str
    steps_left_out: int = Field(ge=0)
    training: Mapping[str, TrainingModel]
    checkpoints: Mapping[str, CheckpointModel] = Field(default_factory=dict)
    rules: Mapping[str, str]
    runs: int = 5
    warm_up_runs: int = 0
    gap_is_limited: bool = False
    closed_parameters: frozenset[str]

    def checkpoint(self, facts: AnyFacts) -> CheckpointModel | None:
        """Return the checkpoints of a run's model, which is named such as ``llama3-8b``."""
        name = facts.model if isinstance(facts, CheckpointFacts) else ""
        return self.checkpoints.get(name.replace("_", "-").rpartition("-")[2].lower())

    def differences(self, facts: AnyFacts) -> Sequence[str] | None:
        """Return how a run differs from the edition's job, ``None`` if it has no such job."""
        if isinstance(facts, TrainingFacts):
            job = self.training.get(facts.model)
            return None if job is None else tuple(_differing(facts, job))
        if not isinstance(facts, CheckpointFacts):
            return () if "cache_options" in self.rules else None  # with it came vectors
        if (model := self.checkpoint(facts)) is None:
            return None
        ranks, is_known = facts.ranks, facts.ranks in (model.ranks, model.subset_ranks)
        processes = "1 process" if ranks == 1 else f"{ranks} processes"
        return () if is_known else (f"{processes} instead of {model.ranks}",)


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


def core_config(settings: Settings, job: TrainingModel | None = None) -> str | None:
    """Return mlpstorage's hash of the settings that define the workload, ``core-config-v1``.

    With a job, what OPEN may change is put back to what the job has. ``None`` without settings.
    """
    if "framework" not in settings:
        return None
    core = (name for name in settings if _CORE.fullmatch(name) and not name.startswith(_TUNABLE))
    found = {name: settings[name] for name in core}
    if job is not None:
        found |= {
            "framework": job.framework,
            "reader.data_loader": job.framework,
            "dataset.format": job.record_format,
            "dataset.num_samples_per_file": job.samples_per_file,
        }
    whole = {name: _canonical(value) for name, value in found.items()}
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _canonical(value: Setting) -> Setting:
    """Return ``7`` for 7.0 and "7", and a Boolean for its name."""
    if isinstance(value, str):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        with suppress(ValueError):
            value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def nearest_edition(
    facts: AnyFacts, settings: Settings, hint: str | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the edition from which a run's parameters differ least, and how they differ.

    ``hint`` decides between editions that differ equally, else the last one is taken.
    """
    found = []
    for number, edition in enumerate(editions().values()):
        differences = edition.differences(facts)
        if differences is not None:
            is_class = class_division(facts, settings, edition) is not None
            is_other = any(each.startswith("accelerator ") for each in differences)
            order = (is_other, len(differences), not is_class, edition.name != hint, -number)
            found.append((order, edition.name, tuple(differences)))
    if not found:
        name = hint if hint and hint in editions() else LAST_EDITION
        return name, (f"no edition has {getattr(facts, 'model', facts.kind)}",)
    _, name, differences = min(found)
    return name, differences


def class_division(facts: AnyFacts, settings: Settings, edition: Edition) -> Division | None:
    """Return whether settings are of a class of the edition, or are but for what OPEN may change.

    ``None`` if they are not, or there are none.
    """
    job = accelerator = None
    if isinstance(facts, TrainingFacts) and (job := edition.training.get(facts.model)):
        accelerator = job.accelerators.get(facts.accelerator or "")
    model = accelerator or edition.checkpoint(facts)
    if model is None or core_config(settings, job) not in model.core_configs:
        return None
    return "closed" if core_config(settings) in model.core_configs else "open"


def _differing(facts: TrainingFacts, job: TrainingModel) -> Iterator[str]:
    accelerator = job.accelerators.get(facts.accelerator or "")
    if accelerator is None:
        yield f"accelerator {facts.accelerator} instead of {' or '.join(job.accelerators)}"
    else:
        yield from _other("batch", facts.batch_samples, accelerator.batch_samples)
        yield from _other("step time", facts.step_s, accelerator.step_s)
    epochs = len(facts.epochs) or len(facts.reported.au if facts.reported else ())
    yield from _other("epochs", epochs or None, job.epochs)
    yield from _other("record bytes", facts.record_bytes, job.record_bytes)
    yield from _other("samples per file", facts.samples_per_file, job.samples_per_file)


def _other(what: str, got: float | None, required: float) -> Iterator[str]:
    if got is not None and not math.isclose(got, required):
        yield f"{what} {got:,.10g} instead of {required:,.10g}"


def published_job(model: str) -> TrainingModel:
    """Return the job of the last edition that has the model; ``KeyError`` if none has."""
    return {name: job for each in editions().values() for name, job in each.training.items()}[model]


def published_accelerators(model: str) -> Mapping[str, Accelerator]:
    """Return the accelerators that editions have for a model, the oldest edition's first."""
    return {
        name: each
        for edition in editions().values()
        if model in edition.training
        for name, each in edition.training[model].accelerators.items()
    }
