"""The sampler's replies to ``open``, ``status``, ``finish`` and ``abort``, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from wattload.core.base_models import Frozen
from wattload.core.power import WindowEnergy
from wattload.core.record.energy import PowerSourceRecord, PowerStateRecord, SamplerRecord
from wattload.core.record.target import PowerCapabilities, PowerStateFacts


class ControllerReading(Frozen):
    """The part of a controller's state that admin commands report.

    ``fields`` are fields of ``ControllerState`` with their values, ``missing`` the reasons for the
    others. ``nvme_version``, the table ``power_states`` and ``power`` belong to
    ``ControllerFacts``; they are ``None`` if the controller can't be identified.
    """

    serial: str
    fields: Mapping[str, Any]
    missing: Mapping[str, str]
    nvme_version: str | None
    power_states: tuple[PowerStateFacts, ...] | None
    power: PowerCapabilities | None = None


class OpenReply(Frozen):
    """What can be sampled, and what was set. Controllers are keyed by name (``nvme0``).

    ``choice`` says which sources were selected for the drives and why. ``recovered`` has sentences
    about changes that earlier runs left behind.
    """

    host: str
    choice: str
    sources: tuple[PowerSourceRecord, ...]
    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    recovered: tuple[str, ...]


class StatusReply(Frozen):
    """The sampler's progress; samples count as soon as they are passed on."""

    tick_count: int
    sample_count: int


class FinishReply(Frozen):
    """The final state of the controllers, what was restored, and the cost of sampling.

    ``data_lost`` has a sentence for each meter that lost readings; such a run has failed. ``cost``
    is ``None`` for a run that was not sampled.
    """

    host: str
    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    own_energies: tuple[WindowEnergy, ...]
    data_lost: tuple[str, ...] = ()
    cost: SamplerRecord | None = None

    def with_counts(self, sample_count: int, lost_count: int) -> Self:
        """Return the reply with the samples that were written and lost in the end."""
        if self.cost is None:
            return self
        counts = {"sample_count": sample_count, "lost_sample_count": lost_count}
        return self.model_copy(update={"cost": self.cost.model_copy(update=counts)})


class AbortReply(Frozen):
    """What was restored after a run that failed."""

    states: tuple[PowerStateRecord, ...]
