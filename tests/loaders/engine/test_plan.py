"""A plan's bytes: what the header says, for any plan, and what the library accepts."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wattload.core.errors import ConfigError, MissingExtraError
from wattload.core.io import (
    Allocation,
    DeviceIdentity,
    Extent,
    IOKind,
    IOOrder,
    IOPlan,
    Stamps,
)
from wattload.loaders.engine import library
from wattload.loaders.engine.plan import (
    EXTENT,
    FILE,
    HEADER,
    MemoryPosition,
    check,
    encode,
    ends_of,
)

WORDS = st.integers(0, 2**64 - 1)
HEADER_FILE = Path(__file__).parents[3] / "loaders/engine/src/wattload_engine.h"


def u32(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 4], "little")


def u64(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


@st.composite
def plans(draw: st.DrawFn) -> IOPlan:
    """Return a plan that an engine can do: extents of whole blocks, one tail per file."""
    kind = draw(st.sampled_from(IOKind))
    units = st.sampled_from([512, 4096])
    stamps = st.builds(Stamps, WORDS, WORDS, st.integers(0, 2**40), units)
    name = st.text("abcé/ ", min_size=1).map(lambda text: Path("/" + text))
    paths = draw(st.lists(name, min_size=1, max_size=4, unique=True))
    extents = []
    for path in paths:
        starts = sorted(draw(st.sets(st.integers(0, 1000), min_size=1, max_size=4)))
        extents += [Extent(path, 65536 * start, 65536) for start in starts]
        extents.append(Extent(path, 65536 * 2000, draw(st.integers(0, 200_000))))
    return IOPlan(
        kind=kind,
        extents=tuple(extents),
        block_bytes=draw(st.sampled_from([4096, 65536, 1 << 20])),
        depth=draw(st.integers(1, 64)),
        fsync=draw(st.booleans()),
        order=draw(st.sampled_from(IOOrder)),
        operation_count=draw(st.none() | st.integers(1, 2**62)),
        duration_s=draw(st.none() | st.floats(1e-6, 1e6)),
        rate_bytes_per_s=draw(st.none() | st.floats(0.1, 1e12)),
        allocation=draw(st.sampled_from(Allocation)),
        stamps=draw(st.none() | stamps),
        seed=draw(WORDS),
        trace_every=draw(st.none() | st.integers(1, 2**31)),
        words=draw(st.none() | st.lists(WORDS, min_size=len(extents), max_size=len(extents))),
        sampled=draw(st.booleans()),
    )


@settings(deadline=None)
@given(
    given_plan=plans(),
    direct=st.booleans(),
    position=st.none() | st.builds(MemoryPosition, st.integers(0, 3), st.just(8192)),
)
def test_every_field_stands_where_the_header_puts_it(
    given_plan: IOPlan, direct: bool, position: MemoryPosition | None
) -> None:
    check(given_plan, block_bytes=1 << 20, depth=64, alignment_bytes=4096)
    data = encode(given_plan, alignment_bytes=4096, direct=direct, destination=position)
    assert_header(data, given_plan, direct, position)
    assert_body(data, given_plan)


def assert_header(
    data: bytes, given_plan: IOPlan, direct: bool, position: MemoryPosition | None
) -> None:
    reads = given_plan.kind is IOKind.READ
    stamps = given_plan.stamps or Stamps(0, 0)
    assert u32(data, 0) == 0x31504C57
    assert u32(data, 4) == len(data)
    assert data[8] == (0 if reads else 1)
    assert data[9] == (0 if given_plan.order is IOOrder.SEQUENTIAL else 1)
    assert data[10] == list(Allocation).index(given_plan.allocation)
    flags = u32(data, 12)
    assert bool(flags & 1) == (given_plan.fsync and not reads)
    assert bool(flags & 2) == direct
    assert bool(flags & 4) == (given_plan.stamps is not None and not reads)
    assert bool(flags & 8) == (given_plan.stamps is not None and reads)
    assert bool(flags & 16) == (position is not None)
    assert bool(flags & 32) == (reads and given_plan.words is None)
    assert bool(flags & 128) == (reads and given_plan.sampled and given_plan.stamps is not None)
    sizes = (given_plan.block_bytes, 4096, given_plan.depth, given_plan.trace_every or 0)
    assert struct.unpack_from("<4I", data, 16) == sizes
    assert u64(data, 32) == (given_plan.operation_count or 0)
    assert (u64(data, 40) > 0) == (given_plan.duration_s is not None)
    assert u64(data, 40) == pytest.approx((given_plan.duration_s or 0) * 1e9, abs=1)
    assert (u64(data, 48) > 0) == (given_plan.rate_bytes_per_s is not None)
    assert u64(data, 48) == pytest.approx(given_plan.rate_bytes_per_s or 0, abs=1)
    words = (given_plan.seed, stamps.nonce, stamps.first_block)
    assert struct.unpack_from("<3Q", data, 56) == words
    where = position or MemoryPosition(0, 0)
    assert (u32(data, 80), u64(data, 88)) == (where.number, where.offset_bytes)
    assert u32(data, 84) == (stamps.unit_bytes if given_plan.stamps else 0)
    assert data[11] == u32(data, 108) == 0
    assert not any(data[112:136])


def assert_body(data: bytes, given_plan: IOPlan) -> None:
    ends = ends_of(given_plan)
    file_count, extent_count, path_bytes = struct.unpack_from("<3I", data, 96)
    assert (file_count, extent_count) == (len(ends), len(given_plan.extents))
    at = 136 + 16 * file_count
    paths = data[at + 32 * extent_count :]
    assert len(paths) == path_bytes
    files = [struct.unpack_from("<Q2I", data, 136 + 16 * number) for number in range(file_count)]
    for (end, start, length), (path, end_bytes) in zip(files, ends.items(), strict=True):
        assert paths[start : start + length] == os.fsencode(path)
        assert end == (end_bytes if given_plan.kind is IOKind.WRITE else 0)
    word = given_plan.stamps.word if given_plan.stamps else 0
    words = given_plan.words or [word] * len(given_plan.extents)
    for number, (extent, own) in enumerate(zip(given_plan.extents, words, strict=True)):
        found = struct.unpack_from("<2I3Q", data, at + 32 * number)
        file = list(ends).index(extent.path)
        assert found == (file, 0, extent.offset_bytes, extent.length_bytes, own)


@settings(deadline=None)
@given(given_plan=plans(), direct=st.booleans())
def test_the_library_accepts_every_plan_that_is_checked(given_plan: IOPlan, direct: bool) -> None:
    data = encode(given_plan, alignment_bytes=4096, direct=direct)
    error = library.Error()
    code = library.load().wl_plan_check(data, len(data), ctypes.byref(error))
    assert (code, error.text) == (0, b"")
    code = library.load().wl_plan_check(data[:-1], len(data) - 1, ctypes.byref(error))
    assert code == library.BAD_PLAN
    assert error.text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"operation_count": 0}, "operation_count must be above 0, got 0"),
        ({"duration_s": -1.0}, r"duration_s must be above 0, got -1\.0"),
        ({"rate_bytes_per_s": 0.0}, "rate_bytes_per_s must be above 0"),
        ({"trace_every": 0}, "trace_every must be above 0"),
        ({"trace_every": 1 << 32}, "trace_every must be at most 4294967295, got 4294967296"),
        ({"rate_bytes_per_s": float("inf")}, "rate_bytes_per_s must be at most .*, got inf"),
        ({"rate_bytes_per_s": float("nan")}, "rate_bytes_per_s must be above 0, got nan"),
        ({"duration_s": 1e300}, r"duration_s must be at most 4611686018, got 1e\+300"),
        ({"operation_count": 1 << 63}, "operation_count must be at most .*, got"),
        ({"depth": 9}, "depth must be 1 to queue_depth 8, got 9"),
        ({"block_bytes": 2048}, "block_bytes must be a multiple of 4096 up to the engine's 65536"),
        ({"block_bytes": 131072}, "up to the engine's 65536, got 131072"),
    ],
)
def test_a_number_out_of_range_is_named(more: dict[str, Any], message: str) -> None:
    given_plan: dict[str, Any] = {
        "kind": IOKind.READ,
        "extents": (Extent(Path("f"), 0, 1),),
        "block_bytes": 4096,
        "depth": 1,
    }
    with pytest.raises(ConfigError, match=message):
        check(IOPlan(**given_plan | more), block_bytes=65536, depth=8, alignment_bytes=4096)


def test_blocks_below_what_o_direct_moves_are_refused() -> None:
    extents = (Extent(Path("f"), 0, 512),)
    given_plan = IOPlan(kind=IOKind.READ, extents=extents, block_bytes=512, depth=1)
    with pytest.raises(ConfigError) as refused:
        check(given_plan, block_bytes=512, depth=1, alignment_bytes=4096)
    assert str(refused.value) == (
        "O_DIRECT moves multiples of 4096 bytes here, which the engine's blocks of 512 are not; "
        "use block_bytes=4096"
    )


DEVICE = DeviceIdentity(
    path=Path("/dev/loop3"),
    major_minor="7:3",
    disk_sequence=41,
    size_bytes=1 << 30,
    logical_block_bytes=512,
)


@pytest.mark.parametrize("kind", IOKind)
@pytest.mark.parametrize("sequence", [41, None])
def test_a_device_is_described_to_the_library(kind: IOKind, sequence: int | None) -> None:
    given_plan = IOPlan(
        kind=kind, extents=[Extent(DEVICE.path, 0, 1 << 30)], block_bytes=65536, depth=8,
        device=replace(DEVICE, disk_sequence=sequence),
    )  # fmt: skip
    check(given_plan, block_bytes=65536, depth=8, alignment_bytes=4096)
    data = encode(given_plan, alignment_bytes=4096, direct=True)
    assert u32(data, 12) == 64 | 2
    assert struct.unpack_from("<Q2IQ", data, 112) == (1 << 30, 7, 3, sequence or 0)


@pytest.mark.parametrize(
    ("device", "extent", "message"),
    [
        (
            {},
            Extent(Path("/dev/loop4"), 0, 4096),
            "for /dev/loop3 only, got an extent of /dev/loop4",
        ),
        ({}, Extent(DEVICE.path, 4096, 1 << 30), "past the device's end at 1073741824"),
        ({}, Extent(DEVICE.path, 0, 4097), "ends at 4097; on a device it must end at a multiple"),
        ({"logical_block_bytes": 8192}, Extent(DEVICE.path, 0, 8192), "logical blocks of 8192"),
        ({"major_minor": "loop3"}, Extent(DEVICE.path, 0, 4096), "two numbers .* got 'loop3'"),
    ],
)
def test_what_is_not_on_the_device_is_refused(
    device: dict[str, Any], extent: Extent, message: str
) -> None:
    given_plan = IOPlan(
        kind=IOKind.WRITE, extents=[extent], block_bytes=4096, depth=1,
        device=replace(DEVICE, **device),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=message):
        check(given_plan, block_bytes=65536, depth=8, alignment_bytes=4096)


def test_a_plan_has_the_lengths_of_the_header() -> None:
    assert (HEADER.size, FILE.size, EXTENT.size) == (136, 16, 32)


def test_a_missing_library_says_what_builds_it(tmp_path: Path) -> None:
    with pytest.raises(
        MissingExtraError, match=r"is missing; install a C compiler .*pip install \."
    ):
        library.load_from(tmp_path / "none.so")


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.so").write_bytes(b"no library at all")
    with pytest.raises(MissingExtraError, match="can't be loaded"):
        library.load_from(tmp_path / "bad.so")


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    version = library.ABI
    monkeypatch.setattr(library, "ABI", 99)
    reason = f"interface version {version}, this wattload needs 99"
    with pytest.raises(MissingExtraError, match=reason):
        library.load_from(library.library_path())


def test_a_library_built_from_other_sources_is_refused(tmp_path: Path) -> None:
    copy = tmp_path / library.FILE_NAME
    copy.write_bytes(library.library_path().read_bytes())
    library.load_from(copy)  # no sources beside it, as in an installed package
    (tmp_path / "src").mkdir()
    (tmp_path / "src/engine.c").write_text("int changed;")
    with pytest.raises(MissingExtraError, match=r"built from other sources .*make setup"):
        library.load_from(copy)
