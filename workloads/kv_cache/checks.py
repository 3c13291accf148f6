"""The checks that a run makes of its files at the end."""

from __future__ import annotations

from wattload.core.record.results import Check
from wattload.core.units import MIB, compared_bytes, format_bytes

_SPARE_SHARE, _SPARE_BYTES = 0.02, 64 * MIB
"""What a file system may take for itself, and others may have written meanwhile."""


def stored_blocks(expected_bytes: int, compared_bytes_: int, bad: int) -> Check:
    """Return the check of all bytes of the cached blocks, read back at the end."""
    holds = compared_bytes_ == expected_bytes and not bad
    return Check(
        name="stored_blocks",
        verdict="pass" if holds else "fail",
        sentence=(
            f"At the end all {format_bytes(compared_bytes_)} in the cache were as they were stored."
            if holds
            else f"At the end {format_bytes(compared_bytes_)} of {format_bytes(expected_bytes)} in "
            f"the cache were compared, and {bad} units of 4096 bytes were wrong."
        ),
        figures={"expected_bytes": expected_bytes, "compared_bytes": compared_bytes_, "bad": bad},
        mandatory=True,
    )


def freed_space(held_bytes: int, taken_bytes: int) -> Check:
    """Return the check that evicted blocks take no space: what is taken is what the cache holds.

    ``taken_bytes`` is by how much the free space has shrunk, whoever wrote meanwhile.
    """
    holds = abs(taken_bytes - held_bytes) <= _SPARE_BYTES + _SPARE_SHARE * held_bytes
    taken, held = compared_bytes(taken_bytes, held_bytes)
    return Check(
        name="freed_space",
        verdict="pass" if holds else "warn",
        sentence=f"The file system has {taken} less free than before, and the cache holds {held}"
        + (": evicted blocks take no space." if holds else "; others may have written meanwhile."),
        figures={"taken_bytes": taken_bytes, "held_bytes": held_bytes},
    )
