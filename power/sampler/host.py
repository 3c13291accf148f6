"""The sampler's own side of everything: no client has a say in these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.power.host import PowerHost

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerHost(PowerHost):
    """A host and ``runs``, the folder of the run folders: nothing is written elsewhere.

    ``is_service`` is true where clients are not the one that started the sampler, and may have
    fewer rights than it has. Only then do the following hold: ``devices`` are the controllers it
    serves (``None``: all), ``allows_system_drive`` says whether a run may set the power state of
    one that holds root or swap, and ``settings`` are the settings of power that no run chooses.
    """

    runs: Path
    is_service: bool = False
    devices: frozenset[str] | None = None
    allows_system_drive: bool = False
    settings: PowerConfig | None = None

    @property
    def samples_name(self) -> str:
        """The name of this host's samples file in a run's folder."""
        return f"samples-{_FOREIGN.sub('_', self.name)}.jsonl"
