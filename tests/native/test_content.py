"""What is in the files and in memory afterwards, through every backend, under the sanitizers."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.native.driver import SANITIZERS, Driver, build_program
from tests.native.plans import (
    CHECK,
    DESTINATION,
    DIRECT,
    EXTENDING,
    FSYNC,
    OVERWRITE,
    PAGE_BYTES,
    RANDOM,
    READ,
    SAMPLE,
    STAMP,
    WRITE,
    Plan,
)
from tests.stamped import bad_blocks, sampled_blocks
from wattload.core.io import BlockIdentity

NO_AVX2 = 77

FILES = [("io_uring", 0), ("io_uring", 3), ("pread", 0)]
BLOCK = 65536
IDENTITY = BlockIdentity(0xFEDC_BA98_7654_3210, 5 << 32 | 9)
NONCE, WORD = IDENTITY.nonce, IDENTITY.word

through_files = pytest.mark.parametrize(("backend", "register"), FILES)


def random_bytes(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def as_array(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


@through_files
def test_a_written_file_bears_its_stamps_and_ends_where_it_should(
    driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    file, fill = tmp_path / "out", tmp_path / "fill"
    fill.write_bytes(random_bytes(8 * BLOCK))
    size = 37 * BLOCK + 5 * PAGE_BYTES + 1234
    plan = Plan(
        paths=[file], extents=[(0, 0, size)], kind=WRITE, flags=DIRECT | STAMP | FSYNC,
        nonce=NONCE, word=WORD, first_block=1000,
    )  # fmt: skip
    job = driver.run(plan, backend=backend, register=register, fill=fill).job
    data = as_array(file.read_bytes())
    assert (job["code"], job["bytes"], job["operations"]) == (0, size, 38)
    assert data.size == size
    assert bad_blocks(data, IDENTITY, first=1000) == 0
    assert job["synced_files"] == 1


@through_files
@pytest.mark.parametrize("more", [0, DESTINATION])
def test_blocks_of_512_bytes_carry_a_stamp_each(
    driver: Driver, tmp_path: Path, backend: str, register: int, more: int
) -> None:
    file, size = tmp_path / "file", 3 * BLOCK + 7 * 512
    write = Plan(
        paths=[file], extents=[(0, 0, size)], kind=WRITE, flags=DIRECT | STAMP | more, align=512,
        unit=512, nonce=NONCE, word=WORD, first_block=77, region=1 if more else 0,
    )  # fmt: skip
    options = {"backend": backend, "register": register, "regions": 4 * BLOCK}
    assert driver.run(write, **options).job["code"] == 0
    content = bytearray(file.read_bytes())
    assert bad_blocks(as_array(bytes(content)), IDENTITY, first=77, unit=512) == 0
    for sector in (0, 128, 391 - 1):
        content[sector * 512 + 511] ^= 1
    swapped = slice(7 * 512, 8 * 512), slice(8 * 512, 9 * 512)
    content[swapped[0]], content[swapped[1]] = content[swapped[1]], content[swapped[0]]
    file.write_bytes(content)
    read = Plan(
        paths=[file], extents=[(0, 0, size)], flags=DIRECT | CHECK, align=512, unit=512,
        block=512, nonce=NONCE, word=WORD, first_block=77,
    )  # fmt: skip
    job = driver.run(read, **options).job
    assert (job["code"], job["bytes"], job["bad_blocks"]) == (0, size, 3 + 2)


@through_files
@pytest.mark.parametrize("unit", [512, PAGE_BYTES])
def test_extents_have_words_of_their_own_and_are_sampled_where_the_draw_says(
    driver: Driver, tmp_path: Path, backend: str, register: int, unit: int
) -> None:
    """The second extent is one block, the third two of which one is cut, the last ends a file."""
    files, seed = [tmp_path / "a", tmp_path / "b"], 99
    extents = [(0, 0, 3 * BLOCK), (1, 0, unit), (1, BLOCK, unit + 100), (0, 4 * BLOCK, 2 * BLOCK)]
    words = [3, (1 << 64) - 1, 7, 8]
    plan = Plan(
        paths=files, extents=extents, words=words, nonce=NONCE, unit=unit, align=512, seed=seed
    )
    options = {"backend": backend, "register": register}
    write = replace(plan, kind=WRITE, flags=DIRECT | STAMP)
    assert driver.run(write, **options).job["code"] == 0
    contents = [bytearray(file.read_bytes()) for file in files]
    compared = 0
    for (file, start, size), word in zip(extents, words, strict=True):
        part = as_array(bytes(contents[file][start : start + size]))
        assert bad_blocks(part, BlockIdentity(NONCE, word), start, unit=unit) == 0
        samples = sampled_blocks(size, seed, word, unit)
        compared += sum(min(unit, size - sample * unit) for sample in samples)
    whole = replace(plan, flags=DIRECT | CHECK)
    sampled = replace(whole, flags=DIRECT | CHECK | SAMPLE)
    good = driver.run(sampled, **options).job
    assert (good["code"], good["bad_blocks"], good["compared_bytes"]) == (0, 0, compared)
    middle = sampled_blocks(3 * BLOCK, seed, 3, unit)[1]
    for sample, found in ((0, 1), (middle, 1), (3 * BLOCK // unit - 1, 1), (middle - 1, 0)):
        broken = bytearray(contents[0])
        broken[sample * unit + unit - 1] ^= 1
        files[0].write_bytes(broken)
        jobs = driver.run(sampled, whole, **options).jobs
        assert [job["bad_blocks"] for job in jobs] == [found, 1]
        assert jobs[1]["compared_bytes"] == jobs[1]["bytes"] == sum(size for *_, size in extents)


@through_files
def test_reads_land_at_their_destination_whole(
    driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    file, dump = tmp_path / "in", tmp_path / "dump"
    data = random_bytes(20 * BLOCK + 777)
    file.write_bytes(data)
    plan = Plan(
        paths=[file], extents=[(0, 0, len(data))], flags=DIRECT | CHECK | DESTINATION, region=2,
        destination=PAGE_BYTES, nonce=NONCE, word=WORD,
    )  # fmt: skip
    regions = f"4096,{PAGE_BYTES + 21 * BLOCK}"
    options = {"backend": backend, "register": register, "regions": regions, "dump": dump}
    job = driver.run(plan, pollers=2, **options).job
    start = 2 * 8 * BLOCK + 4096 + PAGE_BYTES
    assert dump.read_bytes()[start : start + len(data)] == data
    assert job["bad_blocks"] == bad_blocks(as_array(data), IDENTITY) == 20 * 16 + 1


@pytest.mark.parametrize("block", [PAGE_BYTES, 1 << 20])
def test_blocks_are_issued_between_the_sums_of_others(
    driver: Driver, tmp_path: Path, block: int
) -> None:
    file = tmp_path / "file"
    size = 16 << 20
    options = {"block": 1 << 20, "register": 3, "regions": size}
    write = Plan(
        paths=[file], extents=[(0, 0, size)], kind=WRITE, flags=DIRECT | STAMP | DESTINATION,
        block=block, region=1, nonce=NONCE, word=WORD,
    )  # fmt: skip
    read = Plan(
        paths=[file], extents=[(0, 0, size)], block=block, flags=DIRECT | CHECK, nonce=NONCE,
        word=WORD,
    )  # fmt: skip
    driver.run(write, **options)
    seen = driver.run(read, **options).job
    assert bad_blocks(as_array(file.read_bytes()), IDENTITY) == 0
    assert (seen["bytes"], seen["bad_blocks"], seen["code"]) == (size, 0, 0)


def test_a_slot_is_summed_anew_after_it_changed(driver: Driver, tmp_path: Path) -> None:
    """A read and stamps of another unit change it; writes of other files do not."""
    source, one = tmp_path / "source", [(0, 0, 4 * BLOCK)]
    source.write_bytes(random_bytes(4 * BLOCK))
    read = Plan(paths=[source], extents=one, depth=2)
    files = [tmp_path / str(number) for number in range(5)]
    writes = [
        Plan(paths=[file], extents=one, kind=WRITE, flags=DIRECT | STAMP, depth=2, align=512)
        for file in files
    ]
    writes[3].unit = 512
    driver.run(*writes[:2], read, *writes[2:], depth=2)
    for file, write in zip(files, writes, strict=True):
        content = as_array(file.read_bytes())
        assert bad_blocks(content, BlockIdentity(0, 0), unit=write.unit or PAGE_BYTES) == 0


@through_files
@pytest.mark.parametrize("bit", [0, 8 * 4095, 8 * (BLOCK + 40) + 7, 8 * (3 * BLOCK + 4096 + 9)])
def test_a_flipped_bit_is_counted_wherever_it_is(
    driver: Driver, tmp_path: Path, backend: str, register: int, bit: int
) -> None:
    file, size = tmp_path / "file", 3 * BLOCK + PAGE_BYTES + 10
    write = Plan(
        paths=[file], extents=[(0, 0, size)], kind=WRITE, flags=DIRECT | STAMP, nonce=NONCE,
        word=WORD,
    )  # fmt: skip
    read = replace(write, kind=READ, flags=DIRECT | CHECK)
    assert driver.run(write, backend=backend, register=register).job["code"] == 0
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)
    job = driver.run(read, backend=backend, register=register).job
    assert (job["code"], job["bytes"], job["bad_blocks"]) == (0, size, 1)


@pytest.mark.parametrize("backend", ["io_uring", "pread"])
def test_without_o_direct_any_offset_and_length_will_do(
    driver: Driver, tmp_path: Path, backend: str
) -> None:
    file, dump = tmp_path / "in", tmp_path / "dump"
    data = random_bytes(10_001)
    file.write_bytes(data)
    plan = Plan(
        paths=[file], extents=[(0, 3, 9_998)], flags=DESTINATION, align=1, block=1000, region=1
    )
    job = driver.run(plan, backend=backend, regions=9998, dump=dump).job
    assert job["bytes"] == 9998
    assert dump.read_bytes()[8 * BLOCK :] == data[3:]


def test_extending_cuts_a_file_and_overwriting_needs_one(driver: Driver, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 3 * BLOCK)
    late = Plan(paths=[file], extents=[(0, BLOCK, BLOCK)], kind=WRITE, allocation=EXTENDING)
    assert driver.run(late).job["code"] == 0
    assert file.stat().st_size == 2 * BLOCK
    assert file.read_bytes()[:BLOCK] == b"x" * BLOCK
    over = Plan(paths=[file], extents=[(0, 0, 3 * BLOCK)], kind=WRITE, allocation=OVERWRITE)
    assert driver.run(over).job["extending_files"] == 1
    assert driver.run(over).job["extending_files"] == 0
    missing = Plan(
        paths=[tmp_path / "none"], extents=[(0, 0, BLOCK)], kind=WRITE, allocation=OVERWRITE
    )
    job = driver.run(missing).job
    assert (job["code"], job["path"]) == (2, str(tmp_path / "none"))


def test_files_without_blocks_are_made_and_cut(driver: Driver, tmp_path: Path) -> None:
    empty, old = tmp_path / "empty", tmp_path / "old"
    old.write_bytes(b"x" * 100)
    plan = Plan(
        paths=[empty, old], extents=[(0, 0, 0)], ends=[0, 0], kind=WRITE, flags=DIRECT | FSYNC
    )
    assert driver.run(plan).job["code"] == 0
    assert empty.stat().st_size == old.stat().st_size == 0


@through_files
def test_many_files_and_extents_in_random_order(
    driver: Driver, tmp_path: Path, backend: str, register: int
) -> None:
    files = [tmp_path / f"{i}" for i in range(40)]
    extents = [(i, start * 4 * BLOCK, 3 * BLOCK) for start in range(3) for i in range(40)]
    write = Plan(
        paths=files, extents=extents, kind=WRITE, order=RANDOM, flags=DIRECT | STAMP | FSYNC,
        ends=[11 * BLOCK] * 40, nonce=NONCE, word=WORD, block=BLOCK // 2,
    )  # fmt: skip
    read = Plan(
        paths=files, extents=extents, order=RANDOM, flags=DIRECT | CHECK, nonce=NONCE, word=WORD
    )
    written = driver.run(write, backend=backend, register=register).job
    seen = driver.run(read, backend=backend, register=register).job
    assert written["bytes"] == seen["bytes"] == 40 * 9 * BLOCK
    assert (seen["code"], seen["bad_blocks"]) == (0, 0)


def test_sums_are_the_same_without_avx2(tmp_path: Path) -> None:
    program = build_program(tmp_path, SANITIZERS["address"], ["same_sums.c"])
    ran = subprocess.run([program], capture_output=True, text=True, check=False)
    if ran.returncode == NO_AVX2:
        pytest.skip("this CPU does not have AVX2")
    assert not ran.returncode, ran.stderr
    assert int(ran.stdout) > 1000
