"""Targets of random reads, as queues and mapped files share them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass

from wattload.loaders.engine.header import array_of, constants

TARGET_LIMIT = constants()["WL_MAPPED_TARGETS"]
"""Most targets of a setup."""


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a setup: a file, and the stamps of its blocks of 512 bytes."""

    path: str
    size_bytes: int
    nonce: int
    word: int
    first_block: int = 0


def target_array(targets: Sequence[Target]) -> ctypes.Array[ctypes.Structure]:
    """Return the targets as the library takes them; keep it while the call lasts."""
    return array_of(
        "wl_queue_target",
        (
            (os.fsencode(each.path), each.size_bytes, each.nonce, each.word, each.first_block)
            for each in targets
        ),
    )
