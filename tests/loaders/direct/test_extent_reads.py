"""Extents on a real file system: each is at its place, and memory around it is not touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.context import context_at
from wattload.core.errors import ConfigError, DataError
from wattload.core.io import Extent
from wattload.loaders.direct.config import Config

PAGE = 4096


def test_extents_are_read_to_their_places(tmp_path: Path) -> None:
    content = np.random.default_rng(1).integers(0, 256, 20 * PAGE + 100, dtype=np.uint8)
    path, (target,) = tmp_path / "file", context_at(tmp_path).targets
    path.write_bytes(content.tobytes())
    last = Extent(path, 16 * PAGE, 4 * PAGE + 100)
    wanted = [(0, last), (6 * PAGE, Extent(path, 3 * PAGE, PAGE))]
    moved: list[int] = []
    reads = Config(block_bytes=2 * PAGE).extent_reads(8 * PAGE, target)
    result = reads.read(wanted, moved.append)
    assert result.moved_bytes == sum(moved) == sum(each.length_bytes for _, each in wanted)
    memory = reads.memory
    assert np.array_equal(memory[: last.length_bytes], content[16 * PAGE :])
    assert np.array_equal(memory[6 * PAGE : 7 * PAGE], content[3 * PAGE : 4 * PAGE])
    assert not memory[7 * PAGE :].any()
    kept = memory.copy()
    again = reads.repeat([extent for _, extent in wanted], 0.02, moved.append)
    assert again.moved_bytes > 6 * PAGE
    assert np.array_equal(memory, kept)
    for place, fault in ((4 * PAGE, "at least the plan's"), (512, "multiple of 4096")):
        with pytest.raises(ConfigError, match=fault):
            reads.read([(place, last)], moved.append)
    path.write_bytes(content[: 17 * PAGE].tobytes())
    with pytest.raises(DataError, match="truncated"):
        reads.read(wanted, moved.append)
    reads.close()
    reads.close()
