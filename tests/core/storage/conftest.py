"""Drives that the guard examines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.core.storage.drives import (
    Bench,
    FakeNvme,
    fill,
)
from tests.core.storage.loops import (
    SIZE_BYTES,
    loop_device,
)
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.sysfs import Roots


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    image = tmp_path / "drive.img"
    with loop_device(image) as device:
        yield Bench(device, image, RawWriteLog(tmp_path / "state"))


@pytest.fixture
def nvme(bench: Bench, tmp_path: Path) -> FakeNvme:
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)
    device = bench.device.stat().st_rdev
    number = f"{os.major(device)}:{os.minor(device)}"
    controller = roots.sys / "devices/nvme0"
    fill(controller, serial="S1", model="Micron_9550", transport="pcie")
    fill(
        controller / "nvme0n1",
        dev=number,
        size=str(SIZE_BYTES // 512),
        ro="0",
        nsid="1",
        diskseq=Path(f"/sys/block/{bench.device.name}/diskseq").read_text().strip(),
        queue__zoned="none",
        queue__logical_block_size="512",
    )
    (controller / "nvme0n1/holders").mkdir()
    (controller / "nvme0n1/stat").symlink_to(f"/sys/block/{bench.device.name}/stat")
    for link, place in (
        (f"dev/block/{number}", controller / "nvme0n1"),
        ("class/block/nvme0n1", controller / "nvme0n1"),
        ("class/nvme/nvme0", controller),
        ("block/nvme0n1", controller / "nvme0n1"),
    ):
        (roots.sys / link).parent.mkdir(parents=True, exist_ok=True)
        (roots.sys / link).symlink_to(place)
    fill(roots.proc, self__mountinfo="27 1 0:21 / / rw - tmpfs tmpfs rw", swaps="Filename Type")
    fill(roots.proc / "sys/kernel/random", boot_id="b1")
    fill(roots.proc / "self/ns", mnt="")
    (roots.proc / "self/ns/pid").symlink_to("pid:[4026531836]")
    return FakeNvme(bench, roots)
