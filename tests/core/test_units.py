"""Byte counts that a sentence compares."""

from __future__ import annotations

from wattload.core.units import compared_bytes


def test_counts_that_differ_never_read_the_same() -> None:
    assert compared_bytes(67_108_864, 1 << 30) == ["67.11 MB", "1.07 GB"]
    assert compared_bytes(67_108_863, 67_108_864) == ["67,108,863 B", "67,108,864 B"]
    assert compared_bytes(67_108_864, 67_108_864) == ["67.11 MB", "67.11 MB"]
