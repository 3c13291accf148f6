"""What our code inside dlio-benchmark's processes has to know, passed in the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Self

VARIABLE = "WATTLOAD_DLIO_ERRAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """The conductor's socket, and the settings of our reader (``plugin``).

    ``journal`` is where the reader notes each file that it has read, ``largest_bytes`` the size of
    the largest. The other fields are those of the loader's and the workload's configuration.
    """

    socket: str
    journal: str
    largest_bytes: int
    record_format: str
    block_bytes: int
    queue_depth: int
    check_crc: bool

    def environment(self) -> dict[str, str]:
        """Return the variable that carries it."""
        return {VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def given(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return what this process was given, ``None`` where nobody gave it anything."""
        text = environment.get(VARIABLE)
        return cls(**json.loads(text)) if text else None
