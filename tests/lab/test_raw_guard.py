"""The guard of whole drives against the kernel's own NVMe driver, in the guest of `make lab`."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from wattload.core.errors import TargetError
from wattload.core.io import BlockIdentity
from wattload.core.storage.content import sample_offsets
from wattload.core.storage.guard import Guard, Permission
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.storage.targets import TargetKind, resolve_targets
from wattload.loaders.stamps import seal
from wattload.power.nvme.admin import NvmeAdmin
from wattload.power.nvme.namespaces import read_allocated_namespaces, read_format_attributes
from wattload.run.raw_drive import ClaimedDrive, is_sealed, read_nvme

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not os.environ.get("WATTLOAD_LAB_VIRTUAL"), reason="runs in the guest of `make lab`"
    ),
]

PIECE_BYTES = 1 << 20
ANYTHING = frozenset({"unsampled", "unknown"})


def namespaces(serial: str) -> list[Path]:
    """Return the device nodes of a drive's namespaces, by their numbers."""
    found = [
        each
        for each in Path("/sys/block").glob("nvme*n*")
        if "c" not in each.name and (each.resolve().parent / "serial").read_text().strip() == serial
    ]
    assert found, f"the guest has no drive {serial}"
    return [Path("/dev") / each.name for each in sorted(found)]


def guard(
    node: Path,
    folder: Path,
    serial: str,
    *more: str,
    shared: bool = False,
    only: frozenset[str] = ANYTHING,
) -> Guard:
    (target,) = resolve_targets([node], host="lab", kind=TargetKind.BLOCK)
    permission = Permission(
        serials=(serial,), overwrite=only | set(more), shared=shared, block_bytes=16384
    )
    log = RawWriteLog(folder / "state")
    return Guard(target, permission, log, read_nvme=read_nvme, is_sealed=is_sealed)


def content(node: Path) -> str:
    with node.open("rb") as device:
        return hashlib.sha256(device.read(16 * PIECE_BYTES)).hexdigest()


def refused(node: Path, folder: Path, serial: str) -> str:
    before = content(node)
    with pytest.raises(TargetError) as found:
        guard(node, folder, serial).claim()
    assert content(node) == before
    return str(found.value)


def fill(node: Path, letter: bytes) -> None:
    with node.open("r+b") as device:
        device.write(letter * PIECE_BYTES)
        device.flush()
        os.fsync(device.fileno())


@pytest.fixture
def blank(tmp_path: Path) -> Iterator[Path]:
    (node,) = namespaces("QEMU0001")
    subprocess.run(["wipefs", "--all", str(node)], check=True, capture_output=True)
    yield node
    subprocess.run(["wipefs", "--all", str(node)], check=True, capture_output=True)


@contextmanager
def waiting(*words: str, for_file: Path) -> Iterator[None]:
    with subprocess.Popen(words, start_new_session=True) as held:
        try:
            deadline_s = time.monotonic() + 60
            while not for_file.exists():
                assert time.monotonic() < deadline_s
                time.sleep(0.1)
            yield
        finally:
            os.killpg(held.pid, 9)


def test_a_drive_that_nothing_uses_is_claimed(blank: Path, tmp_path: Path) -> None:
    (target,) = resolve_targets([blank], host="lab", kind=TargetKind.BLOCK)
    nobody = Permission(serials=(), overwrite=frozenset(), shared=False)
    found = Guard(
        target,
        nobody,
        RawWriteLog(tmp_path / "state"),
        read_nvme=read_nvme,
        is_sealed=is_sealed,
    ).inspect()
    sentences = [each.sentence for each in found.refusals]
    assert "all of which would be overwritten; give target.serial=" in sentences[0]
    assert not [each for each in sentences if "QEMU0001" in each]
    assert not found.is_final, sentences
    start_s = time.monotonic()
    claim = guard(blank, tmp_path, "QEMU0001").claim()
    print(f"the guard took {time.monotonic() - start_s:.2f} s in the guest")
    claim.close()
    assert "is not the drive of that serial" in refused(blank, tmp_path, "QEMU0002")


def test_a_mount_is_seen_here_and_in_another_namespace(blank: Path, tmp_path: Path) -> None:
    subprocess.run(["mkfs.ext4", "-q", "-F", str(blank)], check=True)
    at, ready = tmp_path / "at", tmp_path / "ready"
    at.mkdir()
    subprocess.run(["mount", str(blank), str(at)], check=True)
    try:
        assert f"is mounted at {at}" in refused(blank, tmp_path, "QEMU0001")
    finally:
        subprocess.run(["umount", str(at)], check=True)
    script = f"mount {blank} {at} && touch {ready} && sleep 600"
    words = ("unshare", "-m", "--propagation", "private", "sh", "-c", script)
    with waiting(*words, for_file=ready):
        assert "is held by what can't be seen from here" in refused(blank, tmp_path, "QEMU0001")


def test_swap_is_never_overwritten(blank: Path, tmp_path: Path) -> None:
    subprocess.run(["mkswap", str(blank)], check=True, capture_output=True)
    subprocess.run(["swapon", str(blank)], check=True)
    try:
        found = refused(blank, tmp_path, "QEMU0001")
    finally:
        subprocess.run(["swapoff", str(blank)], check=True)
    assert f"holds the running system (swap {blank})" in found


def test_a_namespace_of_two_controllers_is_shared(tmp_path: Path) -> None:
    (node,) = namespaces("PAIR0001")
    found = refused(node, tmp_path, "PAIR0001")
    assert "another host may write to it" in found
    assert "has 2 controllers in its subsystem" in found
    guard(node, tmp_path, "PAIR0001", shared=True).claim().close()


@pytest.mark.parametrize("method", ["discard", "format"])
def test_a_purge_tells_what_blocks_read_as(
    blank: Path, tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    fill(blank, b"x")
    (target,) = resolve_targets([blank], host="lab", kind=TargetKind.BLOCK)
    own = guard(blank, tmp_path, "QEMU0001")
    drive = ClaimedDrive(target, own, own.claim())
    try:
        purged = drive.purge("format" if method == "format" else "discard")
    finally:
        drive.close()
    print(purged)
    total = purged["blank_count"] + purged["own_count"] + purged["unknown_count"]
    assert total in range(1024, 1027)
    if method == "format":
        assert purged["unknown_count"] == 0


def test_a_format_leaves_other_namespaces_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    first, second = namespaces("TWO0001")
    fill(first, b"1")
    fill(second, b"2")
    before = content(second)
    assert "is not the drive of that serial" in refused(first, tmp_path, "TWO0001")
    number = int((Path("/sys/block") / first.name / "nsid").read_text())
    (target,) = resolve_targets([first], host="lab", kind=TargetKind.BLOCK)
    own = guard(first, tmp_path, f"TWO0001:{number}", shared=True)
    device = NvmeAdmin(first.name.rpartition("n")[0])
    assert len(read_allocated_namespaces(device)) == 2
    reaches_all = bool(read_format_attributes(device) & 0b11)
    device.close()
    drive = ClaimedDrive(target, own, own.claim())
    try:
        if reaches_all:
            with pytest.raises(TargetError, match="whose data a format would erase too"):
                drive.purge("format")
        else:
            assert drive.purge("format")["unknown_count"] == 0
    finally:
        drive.close()
    assert content(second) == before


GAP_BYTES = 192 << 10


def fill_by_a_run(node: Path, folder: Path, run_id: str) -> list[int]:
    """Make a run that stamps the sampled blocks as if it had filled the drive.

    Returns where ``GAP_BYTES`` are not sampled.
    """
    (target,) = resolve_targets([node], host="lab", kind=TargetKind.BLOCK)
    own = guard(node, folder, "QEMU0001")
    drive = ClaimedDrive(target, own, own.claim())
    offsets = sample_offsets(own.identity.size_bytes, "QEMU0001")
    try:
        drive.begin(run_id, ["wattload", "run"], 0, own.identity.size_bytes)
        with node.open("r+b") as device:
            for offset in offsets:
                block = np.zeros(4096, np.uint8)
                seal(block, BlockIdentity(drive.nonce, 1), offset_bytes=offset)
                device.seek(offset)
                device.write(block.tobytes())
            device.flush()
            os.fsync(device.fileno())
        drive.end("complete", len(offsets) * 4096)
    finally:
        drive.close()
    pairs = pairwise(offsets)
    return [first + 4096 for first, last in pairs if last - first >= GAP_BYTES + 4096]


def findings(node: Path, folder: Path) -> str:
    found = guard(node, folder, "QEMU0001", only=frozenset()).inspect()
    return " ".join(each.sentence for each in found.refusals)


def test_what_others_write_between_the_samples_is_found_by_the_counts(
    blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(tmp_path / "state"))
    gaps = fill_by_a_run(blank, tmp_path, "run-1")
    assert findings(blank, tmp_path) == ""
    with blank.open("r+b") as device:
        device.seek(gaps[0])
        device.write(b"precious" * 16384)
    found = findings(blank, tmp_path)
    print(found)
    assert "131,072 bytes were written by the kernel's count); target.overwrite= must name" in found
    gaps = fill_by_a_run(blank, tmp_path, "run-2")
    assert findings(blank, tmp_path) == ""
    # The kernel does not count what a program sends to the drive by itself; the drive does.
    data = tmp_path / "data"
    data.write_bytes(b"p" * GAP_BYTES)
    for at in gaps[:4]:
        words = ["--start-block", str(at // 512), "--block-count", str(GAP_BYTES // 512 - 1)]
        size = ["--data-size", str(GAP_BYTES), "--data", str(data)]
        subprocess.run(["nvme", "write", str(blank), *words, *size], check=True)
    found = findings(blank, tmp_path)
    print(found)
    assert "its own count of bytes written, in steps of 512,000, went from" in found
