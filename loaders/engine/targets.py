"""Targets of random reads and what failed on them, as queues and mapped files share them.

Field order and meaning are those of ``src/wattload_engine.h``.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from ctypes import c_char_p, c_int32, c_uint32, c_uint64
from dataclasses import dataclass

FAILURE_LIMIT = 128
TARGET_LIMIT = 64
"""Most targets of a setup."""


class TargetStruct(ctypes.Structure):
    """``wl_queue_target``."""

    _fields_ = (
        ("path", c_char_p),
        ("bytes", c_uint64),
        ("nonce", c_uint64),
        ("word", c_uint64),
        ("first_block", c_uint64),
    )


class Failure(ctypes.Structure):
    """``wl_queue_failure``."""

    _fields_ = (("code", c_int32), ("target", c_uint32), ("offset", c_uint64), ("count", c_uint64))


@dataclass(frozen=True, slots=True)
class Target:
    """A target of a setup: a file, and the stamps of its blocks of 512 bytes."""

    path: str
    size_bytes: int
    nonce: int
    word: int
    first_block: int = 0


def target_array(targets: Sequence[Target]) -> ctypes.Array[TargetStruct]:
    """Return the targets as the library takes them; keep it while the call lasts."""
    return (TargetStruct * len(targets))(
        *(
            TargetStruct(
                os.fsencode(each.path), each.size_bytes, each.nonce, each.word, each.first_block
            )
            for each in targets
        )
    )
