"""A plan for a block device moves bytes on that device only, and creates nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.loop_devices import identity_of, loop_device
from tests.native.driver import Driver
from tests.native.plans import (
    CHECK,
    DEVICE,
    DIRECT,
    EXTENDING,
    FSYNC,
    OVERWRITE,
    PREALLOCATED,
    READ,
    STAMP,
    WRITE,
    Plan,
)

BLOCK = 65536
SIZE = 16 * BLOCK
ENOENT = 2
OTHER_DEVICE = -10

through_files = pytest.mark.parametrize("backend", ["io_uring", "pread"])


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """The file behind the device."""
    path = tmp_path / "image"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def device(image: Path) -> Iterator[Path]:
    """A block device of 1 MiB."""
    with loop_device(image) as path:
        yield path


def numbers(device: Path) -> tuple[int, int, int, int]:
    """Return a device's size, major and minor number and disk sequence."""
    found = identity_of(device)
    major, minor = map(int, found.major_minor.split(":"))
    return found.size_bytes, major, minor, found.disk_sequence or 0


def plan_for(path: Path, **more: Any) -> Plan:
    """Return a plan that writes all of a device."""
    fields: dict[str, Any] = {"kind": WRITE, "flags": DIRECT | DEVICE | FSYNC}
    fields |= {"device": numbers(path)} | more
    return Plan(paths=[path], extents=[(0, 0, SIZE)], **fields)


@through_files
@pytest.mark.parametrize("allocation", [PREALLOCATED, OVERWRITE, EXTENDING])
def test_a_device_is_written_and_read_back(
    driver: Driver, device: Path, backend: str, allocation: int
) -> None:
    write = plan_for(
        device, allocation=allocation, flags=DIRECT | DEVICE | STAMP | FSYNC, nonce=allocation
    )
    written = driver.run(write, backend=backend).job
    read = plan_for(device, kind=READ, flags=DIRECT | DEVICE | CHECK, nonce=allocation)
    seen = driver.run(read, backend=backend).job
    assert (written["code"], written["bytes"], written["extending_files"]) == (0, SIZE, 0)
    assert written["synced_files"] == 1
    assert (seen["code"], seen["bytes"], seen["bad_blocks"]) == (0, SIZE, 0)


@through_files
@pytest.mark.parametrize("kind", [READ, WRITE])
@pytest.mark.parametrize("field", [0, 1, 2, 3])
def test_another_device_is_refused_before_a_byte_moves(
    driver: Driver, device: Path, image: Path, *, backend: str, kind: int, field: int
) -> None:
    size, major, minor, sequence = numbers(device)
    if field == 3 and not sequence:
        pytest.skip("this kernel has no disk sequence")
    before = image.read_bytes()
    changed = list(numbers(device))
    changed[field] += 4096 if field == 0 else 1
    plan = plan_for(device, kind=kind, flags=DIRECT | DEVICE, device=tuple(changed))
    job = driver.run(plan, backend=backend).job
    sentences = (
        f"has another size ({size + 4096} bytes, now {size})",
        f"is another device ({major + 1}:{minor}, now {major}:{minor})",
        f"is another device ({major}:{minor + 1}, now {major}:{minor})",
        f"was exchanged (disk sequence {sequence + 1}, now {sequence})",
    )
    assert (job["code"], job["operations"], job["path"]) == (OTHER_DEVICE, 0, str(device))
    assert job["text"] == sentences[field]
    assert image.read_bytes() == before


def test_an_unknown_disk_sequence_is_not_compared(driver: Driver, device: Path) -> None:
    plan = plan_for(device, device=(*numbers(device)[:3], 0))
    assert driver.run(plan).job["code"] == 0


@through_files
def test_a_device_that_was_exchanged_keeps_its_bytes(
    driver: Driver, tmp_path: Path, image: Path, backend: str
) -> None:
    other = tmp_path / "other"
    other.write_bytes(os.urandom(SIZE))
    before = other.read_bytes()
    with loop_device(image) as device:
        if not identity_of(device).disk_sequence:
            pytest.skip("this kernel has no disk sequence")
        plan = plan_for(device)
    with loop_device(other, device) as device:
        now = identity_of(device).disk_sequence
        job = driver.run(plan, backend=backend).job
    assert job["code"] == OTHER_DEVICE
    assert job["text"] == f"was exchanged (disk sequence {plan.device[3]}, now {now})"
    assert other.read_bytes() == before


@through_files
@pytest.mark.parametrize("allocation", [PREALLOCATED, OVERWRITE, EXTENDING])
def test_a_file_in_the_place_of_a_device_is_left_alone(
    driver: Driver, tmp_path: Path, backend: str, allocation: int
) -> None:
    path = tmp_path / "drive"
    plan = Plan(
        paths=[path], extents=[(0, 0, SIZE)], kind=WRITE, allocation=allocation,
        flags=DIRECT | DEVICE | FSYNC, device=(SIZE, 7, 3, 41),
    )  # fmt: skip
    gone = driver.run(plan, backend=backend).job
    assert (gone["code"], gone["path"]) == (ENOENT, str(path))
    assert not path.exists()
    path.write_bytes(b"precious")
    job = driver.run(plan, backend=backend).job
    assert (job["code"], job["text"]) == (OTHER_DEVICE, "is not a block device any more")
    assert path.read_bytes() == b"precious"


@through_files
@pytest.mark.parametrize("allocation", [PREALLOCATED, OVERWRITE, EXTENDING])
def test_a_device_is_not_written_by_a_plan_that_does_not_identify_it(
    driver: Driver, device: Path, image: Path, backend: str, allocation: int
) -> None:
    before = image.read_bytes()
    plan = plan_for(device, allocation=allocation, flags=DIRECT, device=(0, 0, 0, 0))
    job = driver.run(plan, backend=backend).job
    assert (job["code"], job["operations"]) == (OTHER_DEVICE, 0)
    assert job["text"].startswith("is a block device, and the plan")
    assert image.read_bytes() == before
    assert driver.run(replace(plan, kind=READ), backend=backend).job["bytes"] == SIZE
