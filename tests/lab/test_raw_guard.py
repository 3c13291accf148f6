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
    subprocess.run(["mount", "-o", "ro", str(blank), str(at)], check=True)  # it writes nothing
    try:
        assert f"is mounted at {at}" in refused(blank, tmp_path, "QEMU0001")
    finally:
        subprocess.run(["umount", str(at)], check=True)
    script = f"mount -o ro {blank} {at} && touch {ready} && sleep 600"
    words = ("unshare", "-m", "--propagation", "private", "sh", "-c", script)
    with waiting(*words, for_file=ready):
        found = refused(blank, tmp_path, "QEMU0001")
        assert f"{blank.name} is mounted at {at} in the mount namespace of process" in found


def must(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def load(*modules: str) -> None:
    must("modprobe", "--all", "--dirname", os.environ["WATTLOAD_LAB_KERNEL"], *modules)


@contextmanager
def loop_over(device: str, offset_bytes: int) -> Iterator[str]:
    load("loop")
    loop = must("losetup", "--find", "--show", "--offset", str(offset_bytes), device).strip()
    try:
        yield loop
    finally:
        must("losetup", "--detach", loop)


@contextmanager
def file_system_on(device: str, at: Path) -> Iterator[None]:
    at.mkdir(exist_ok=True)
    must("mkfs.ext4", "-q", "-F", device)
    must("mount", "-o", "ro,noload", device, str(at))
    try:
        yield
    finally:
        must("umount", str(at))


@contextmanager
def mapped_over(device: str) -> Iterator[str]:
    """Make a device-mapper volume over all of a device but its first MiB; yield its name."""
    load("dm-mod")
    sectors = int(must("blockdev", "--getsz", device)) - 2048
    table = f"0 {sectors} linear {device} 2048"
    must("dmsetup", "create", "lab", "--noudevsync", "--noudevrules", "--table", table)
    try:
        yield must("dmsetup", "info", "-c", "--noheadings", "-o", "blkdevname", "lab").strip()
    finally:
        must("dmsetup", "remove", "--noudevsync", "--noudevrules", "lab")


@contextmanager
def array_over(device: str) -> Iterator[str]:
    """Make an md array of one member without metadata, as mdadm does, by sysfs (md.rst)."""
    load("md-mod", "raid1")
    Path("/sys/module/md_mod/parameters/new_array").write_text("md_lab")
    folder = Path("/sys/block/md_lab/md")
    number = Path(device).stat().st_rdev
    size_kib = str(int(must("blockdev", "--getsize64", device)) // 1024)
    values = {
        "metadata_version": "none",
        "level": "raid1",
        "raid_disks": "1",
        "new_dev": f"{os.major(number)}:{os.minor(number)}",
        f"dev-{Path(device).name}/size": size_kib,
        f"dev-{Path(device).name}/slot": "0",
        "component_size": size_kib,
        "array_state": "active",
    }
    for name, value in values.items():
        (folder / name).write_text(value)
    try:
        yield "/dev/md_lab"
    finally:
        (folder / "array_state").write_text("clear")


def test_a_loop_device_within_the_drive_is_seen(blank: Path, tmp_path: Path) -> None:
    at = tmp_path / "at"
    with loop_over(str(blank), PIECE_BYTES) as lower, loop_over(lower, 8192) as upper:
        names = Path(lower).name, Path(upper).name
        words = f"{names[0]}, a loop device over {blank.name} from byte {PIECE_BYTES}"
        assert f"{words} is active; detach it" in refused(blank, tmp_path, "QEMU0001")
        with file_system_on(upper, at):
            found = refused(blank, tmp_path, "QEMU0001")
    above = f"{names[1]}, a loop device over {words} from byte 8192"
    assert f"{above}, is mounted at {at}" in found


def test_a_device_mapper_volume_is_seen_also_over_a_loop_device(
    blank: Path, tmp_path: Path
) -> None:
    at = tmp_path / "at"
    with mapped_over(str(blank)) as volume:
        words = f"{volume} (lab) over {blank.name}"
        assert f"{words} is active; stop it" in refused(blank, tmp_path, "QEMU0001")
    with loop_over(str(blank), PIECE_BYTES) as loop, mapped_over(loop) as volume:
        words = f"{volume} (lab) over {Path(loop).name}, a loop device over {blank.name}"
        with file_system_on(f"/dev/{volume}", at):
            found = refused(blank, tmp_path, "QEMU0001")
    assert f"{words} from byte {PIECE_BYTES}, is mounted at {at}" in found


def test_an_array_is_seen_also_over_a_loop_device(blank: Path, tmp_path: Path) -> None:
    with array_over(str(blank)):
        found = refused(blank, tmp_path, "QEMU0001")
    assert f"md_lab over {blank.name} is active; stop it" in found
    at = tmp_path / "at"
    with (
        loop_over(str(blank), PIECE_BYTES) as loop,
        array_over(loop) as array,
        file_system_on(array, at),
    ):
        found = refused(blank, tmp_path, "QEMU0001")
    words = f"md_lab over {Path(loop).name}, a loop device over {blank.name} from byte"
    assert f"{words} {PIECE_BYTES}, is mounted at {at}" in found


def test_an_export_to_other_hosts_is_seen(blank: Path, tmp_path: Path) -> None:
    """The kernel's NVMe target and LIO open a drive without asking for it exclusively."""
    load("configfs", "nvmet", "target_core_mod", "target_core_file")
    top = Path("/sys/kernel/config")
    if not any(top.iterdir()):
        must("mount", "-t", "configfs", "configfs", str(top))
    namespace = top / "nvmet/subsystems/lab/namespaces/1"
    namespace.parent.parent.mkdir()
    namespace.mkdir()
    (namespace / "device_path").write_text(str(blank))
    guard(blank, tmp_path, "QEMU0001").claim().close()
    (namespace / "enable").write_text("1")
    try:
        found = refused(blank, tmp_path, "QEMU0001")
    finally:
        (namespace / "enable").write_text("0")
        namespace.rmdir()
        namespace.parent.parent.rmdir()
    assert f"nvmet exports {blank} ({namespace}); disable that first" in found
    disk = top / "target/core/fileio_0/lab"
    disk.parent.mkdir()
    disk.mkdir()
    (disk / "control").write_text(f"fd_dev_name={blank},fd_dev_size=1048576\n")
    (disk / "enable").write_text("1")
    try:
        found = refused(blank, tmp_path, "QEMU0001")
    finally:
        disk.rmdir()
        disk.parent.rmdir()
    assert f"LIO exports {blank} ({disk}); disable that first" in found


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
    assert (
        "131,072 bytes were written by the kernel's count); to overwrite it, set target." in found
    )
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
