"""What the sampler answers to ``open`` and ``finish``; travels as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from wattload.core.power import Evidence, PowerBin
from wattload.core.record.base import Frozen
from wattload.core.record.controller import PowerCapabilities, PowerStateFacts
from wattload.core.record.energy import PowerSourceRecord, PowerStateRecord
from wattload.core.record.sampler import SamplerRecord

SAMPLES_NAME = r"^samples-[A-Za-z0-9._-]+\.jsonl$"
"""A name in the run's folder and nothing else: the run reads that file, and removes it."""


class ControllerReading(Frozen):
    """The half of a controller's state that admin commands answer.

    ``fields`` are fields of ``ControllerState`` with their values, ``missing`` the reasons for the
    others. ``nvme_version``, the table ``power_states`` and ``power`` belong to
    ``ControllerFacts``; they are ``None`` where the controller can't be identified.
    """

    serial: str
    fields: Mapping[str, Any]
    missing: Mapping[str, str]
    nvme_version: str | None
    power_states: tuple[PowerStateFacts, ...] | None
    power: PowerCapabilities | None = None


class OwnEnergy(Frozen):
    """Energy that a device integrated by itself over one window; the fields of ``WindowEnergy``."""

    source: str
    device: str
    start_ns: int
    end_ns: int
    energy_j: float | None
    evidence: Evidence
    accuracy_percent: float | None = None
    resolution_w: float | None = None
    uncovered_s: float | None = None
    max_w: float | None = None
    reason: str = ""
    histogram: tuple[PowerBin, ...] = ()


class OpenReport(Frozen):
    """What is there to sample, and what was set. Controllers are keyed by name (``nvme0``).

    ``choice`` says which source was taken for the drive and why. ``leftovers`` are sentences about
    earlier runs that could not undo a power state. ``not_counted`` says which block devices'
    throughput over time stays unknown, and why.
    """

    host: str
    choice: str
    sources: tuple[PowerSourceRecord, ...]
    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    leftovers: tuple[str, ...]
    not_counted: Mapping[str, str]


class StatusReport(Frozen):
    """How far the sampler is. ``cpu_s`` is its own time since ``start``."""

    state: str
    tick_count: int
    missed_tick_count: int
    sample_count: int
    lost_sample_count: int
    cpu_s: float


class FinishReport(Frozen):
    """What was sampled, how the controllers are now, and what was restored.

    ``data_lost`` has a sentence for each meter that said it dropped readings: its run has failed.
    """

    host: str
    samples_file: Annotated[str, Field(pattern=SAMPLES_NAME)] | None
    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    own_energies: tuple[OwnEnergy, ...]
    tick_count: int
    missed_tick_count: int
    sample_count: int
    lost_sample_count: int
    cpu_s: float
    data_lost: tuple[str, ...] = ()
    cost: SamplerRecord | None = None
