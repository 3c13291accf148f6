"""Single sectors of 512 bytes, written and read by O_DIRECT, each with a stamp of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from wattload.core.errors import ConfigError
from wattload.core.io import Extent, IOKind, IOPlan, Stamps
from wattload.loaders.aligned_io import direct_alignment
from wattload.loaders.engine.engine import IOEngine
from wattload.loaders.engine.library import library_path

pytestmark = pytest.mark.skipif(
    not library_path().exists(), reason="the engine is not built: make setup builds it"
)

SECTOR = 512
COUNT = 256
STAMPS = Stamps(nonce=5, word=9, first_block=3, unit_bytes=SECTOR)


def plan_of(path: Path, kind: IOKind, **more: object) -> IOPlan:
    values: dict[str, object] = {
        "kind": kind, "extents": (Extent(path, 0, COUNT * SECTOR),), "block_bytes": SECTOR,
        "depth": 8, "stamps": STAMPS,
    }  # fmt: skip
    return IOPlan(**values | more)  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return a file whose every sector was written as one block."""
    path = tmp_path / "sectors"
    path.touch()
    if direct_alignment(path, SECTOR) > SECTOR:
        pytest.skip("O_DIRECT does not move single sectors on the drive of the tests")
    engine = IOEngine(block_bytes=SECTOR, depth=8)
    try:
        result = engine.run(plan_of(path, IOKind.WRITE, fsync=True), alignment_bytes=SECTOR)
    finally:
        engine.close()
    assert (result.operation_count, result.moved_bytes) == (COUNT, COUNT * SECTOR)
    return path


def read(path: Path, *, alignment_bytes: int = SECTOR, **more: object) -> int:
    """Read the file and return how many of its sectors are wrong."""
    engine = IOEngine(block_bytes=SECTOR, depth=8, pollers=2)
    plan = plan_of(path, IOKind.READ, **more)
    try:
        result = engine.run(plan, alignment_bytes=alignment_bytes)
    finally:
        engine.close()
    assert result.operation_count == (plan.operation_count or COUNT)
    return result.bad_blocks


def test_swapped_sectors_are_both_bad(written: Path) -> None:
    content = np.fromfile(written, dtype=np.uint8).reshape(COUNT, SECTOR)
    content[[7, 8]] = content[[8, 7]]
    content.tofile(written)
    assert read(written) == 2


def test_sectors_within_larger_blocks_are_compared_one_by_one(written: Path) -> None:
    content = np.fromfile(written, dtype=np.uint8).reshape(COUNT, SECTOR)
    content[[7, 8, 200], 300] ^= 1
    content.tofile(written)
    engine = IOEngine(block_bytes=4096, depth=8)
    try:
        plan = plan_of(written, IOKind.READ, block_bytes=4096)
        result = engine.run(plan)
    finally:
        engine.close()
    assert (result.operation_count, result.bad_blocks) == (COUNT // 8, 3)


def test_sectors_are_refused_where_o_direct_moves_larger_blocks(written: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read(written, alignment_bytes=4096)
    assert str(refused.value) == (
        "O_DIRECT moves multiples of 4096 bytes here, which the engine's blocks of 512 are not; "
        "use block_bytes=4096"
    )


def test_a_block_smaller_than_its_stamp_is_refused(written: Path) -> None:
    with pytest.raises(ConfigError, match="must be a multiple of 4096, got 512"):
        read(written, stamps=Stamps(5, 9))
