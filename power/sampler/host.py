"""The sampler's own side of everything: no client has a say in these."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from wattload.power.host import PowerHost

_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerHost(PowerHost):
    """A host and ``runs``, the folder of the run folders: nothing is written elsewhere."""

    runs: Path

    @property
    def samples_name(self) -> str:
        """The name of this host's samples file in a run's folder."""
        return f"samples-{_FOREIGN.sub('_', self.name)}.jsonl"
