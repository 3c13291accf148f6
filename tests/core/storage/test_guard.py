from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from string import Template
from types import SimpleNamespace
from typing import Any, Literal
from uuid import UUID

import numpy as np
import pytest

from tests.core.storage.loops import (
    LINUX_DATA,
    SIZE_BYTES,
    add_partition,
    command,
    digest,
    loop_device,
    must,
    write_gpt,
)
from tests.core.storage.mounting import mounted
from wattload.core.errors import PowerError, TargetError
from wattload.core.io import BlockIdentity
from wattload.core.storage import device_users
from wattload.core.storage import guard as guard_module
from wattload.core.storage.block_stack import block_node
from wattload.core.storage.content import sample_offsets
from wattload.core.storage.efi import EFI_TYPE
from wattload.core.storage.guard import Guard, NvmeFacts, Permission
from wattload.core.storage.raw_device import (
    DriveName,
    attachment_text,
    drive_name,
    require_same,
)
from wattload.core.storage.raw_writes import LAST_NAME, Begin, RawWriteLog
from wattload.core.storage.targets import Target, TargetKind, resolve_targets
from wattload.core.sysfs import Roots
from wattload.loaders.stamps import seal
from wattload.run.raw_drive import is_sealed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach loop devices")

HEALTHY = NvmeFacts(
    critical_warning=0,
    spare_percent=100,
    spare_threshold_percent=10,
    percentage_used=3,
    is_shareable=False,
    is_reserved=False,
    controller_count=1,
    used_bytes=0,
    written_bytes=0,
)


EVERY_NAME = ("unknown", "unsampled", "unseen", "worn")


def refuse_nvme(controller: str, namespace: int, node: Path) -> NvmeFacts:
    raise PowerError(f"{controller} does not tell")


@dataclass
class Bench:
    """A loop device, its image, and a log of raw writes."""

    device: Path
    image: Path
    log: RawWriteLog

    @property
    def target(self) -> Target:
        (target,) = resolve_targets([self.device], host="here", kind=TargetKind.BLOCK)
        return target

    def guard(self, *overwrite: str, serial: str | None = None, block_bytes: int = 16384) -> Guard:
        permission = Permission(
            serials=(str(self.image) if serial is None else serial,),
            overwrite=frozenset(overwrite),
            shared=False,
            block_bytes=block_bytes,
        )
        return Guard(self.target, permission, self.log, read_nvme=refuse_nvme, is_sealed=is_sealed)

    def refused(self, *overwrite: str, serial: str | None = None) -> str:
        """Return why the drive is refused; it is proved that not a byte has changed."""
        before = digest(self.device)
        with pytest.raises(TargetError) as refused:
            self.guard(*overwrite, serial=serial).claim()
        assert digest(self.device) == before
        return str(refused.value)

    def accepted(self, *overwrite: str) -> Guard:
        guard = self.guard(*overwrite)
        guard.claim().close()
        return guard

    def write(self, offset_bytes: int, content: bytes) -> None:
        with self.device.open("r+b") as device:
            device.seek(offset_bytes)
            device.write(content)
            device.flush()
            os.fsync(device.fileno())

    def completed(self, *overwrite: str, nonce: int) -> None:
        """Make a run that writes the whole drive."""
        run_id = f"run-{nonce}"
        guard = self.accepted(*overwrite)
        self.began(guard, run_id, nonce)
        self.stamp(nonce)
        self.log.end(run_id, "complete", own_bytes=SIZE_BYTES, left=guard.read_counts())

    def allocate(self) -> None:
        """Give the image all its blocks, so that it could hold data anywhere."""
        with self.image.open("r+b") as file:
            file.write(bytes(SIZE_BYTES))
            os.fsync(file.fileno())
        must("blockdev", "--flushbufs", str(self.device))

    def stamp(self, nonce: int, size_bytes: int = SIZE_BYTES) -> None:
        content = np.random.default_rng(1).integers(0, 256, size_bytes, np.uint8)
        seal(content, BlockIdentity(nonce, 7))
        self.write(0, content.tobytes())

    def began(self, guard: Guard, run_id: str, nonce: int, covered_bytes: int = SIZE_BYTES) -> None:
        """Write the row of a run that the guard allowed."""
        if guard.name is None:
            guard.inspect()
        assert guard.name is not None
        assert guard.counts is not None
        self.log.begin(
            Begin(
                run_id=run_id,
                command=("wattload", "run"),
                path=str(self.device),
                serial=guard.name.serial,
                size_bytes=SIZE_BYTES,
                disk_sequence=guard.identity.disk_sequence,
                findings=guard.findings,
                overwrite=guard.overwritten,
                nonce=nonce,
                planned_bytes=SIZE_BYTES,
                covered_bytes=covered_bytes,
                devices=guard.counts.written,
            )
        )


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    image = tmp_path / "drive.img"
    with loop_device(image) as device:
        yield Bench(device, image, RawWriteLog(tmp_path / "state"))


def test_a_blank_drive_is_accepted(bench: Bench) -> None:
    guard = bench.accepted()
    assert guard.content is not None
    assert 1024 <= guard.content.blank_count <= 1026
    assert not guard.findings


def test_a_partition_is_refused(bench: Bench) -> None:
    add_partition(bench.device, "1", "2048", "20480")
    part = Path(f"{bench.device}p1")
    before = digest(bench.device)
    with pytest.raises(TargetError, match=r"p1 is a partition; name the whole drive"):
        resolve_targets([part], host="here", kind=TargetKind.BLOCK)
    assert digest(bench.device) == before


def test_a_read_only_drive_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, "--read-only") as device:
        found = Bench(device, image, RawWriteLog(tmp_path / "state")).refused()
    assert "is read-only" in found


def test_blocks_smaller_than_those_of_the_drive_are_refused(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, "--sector-size", "4096") as device:
        bench = Bench(device, image, RawWriteLog(tmp_path / "state"))
        with pytest.raises(TargetError, match=r"logical blocks of 4096 bytes"):
            bench.guard(block_bytes=512).claim()
        bench.accepted()


def test_a_drive_needs_its_serial(bench: Bench) -> None:
    assert "is not the drive of that serial" in bench.refused(serial="S1")
    guard = Guard(
        bench.target,
        Permission(serials=(), overwrite=frozenset(), shared=False),
        bench.log,
        read_nvme=refuse_nvme,
        is_sealed=is_sealed,
    )
    with pytest.raises(TargetError, match=r"all of which would be overwritten; give target.serial"):
        guard.claim()


def test_no_message_has_a_serial(bench: Bench) -> None:
    target = bench.target
    assert target.facts.stack is not None
    folder = Path("/sys/block") / bench.device.name
    serial = drive_name(bench.device, folder, target.facts.stack).serial
    inspected = bench.guard(serial="S1").inspect()
    assert inspected.refusals
    assert not [each for each in inspected.refusals if serial in each.sentence]
    assert not [each for each in inspected.refusals if str(bench.image) in each.sentence]


def test_a_mounted_drive_is_refused(bench: Bench, tmp_path: Path) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    with mounted(tmp_path / "mounted", str(bench.device)) as at:
        assert f"is mounted at {at}" in bench.refused("unknown")


def test_a_mounted_partition_is_refused(bench: Bench, tmp_path: Path) -> None:
    add_partition(bench.device, "1", "2048", "20480")
    must("mkfs.ext4", "-q", f"{bench.device}p1")
    with mounted(tmp_path / "mounted", f"{bench.device}p1") as at:
        assert f"is mounted at {at}" in bench.refused("unknown")


@pytest.mark.parametrize("part", ["", "p1"])
def test_a_mount_in_another_namespace_is_refused(bench: Bench, tmp_path: Path, part: str) -> None:
    if part:
        add_partition(bench.device, "1", "2048", "20480")
    must("mkfs.ext4", "-q", f"{bench.device}{part}")
    with mounted_elsewhere(tmp_path, f"{bench.device}{part}") as process:
        found = bench.refused(*EVERY_NAME)
    where = f"{bench.device.name}{part} is mounted at {tmp_path}/elsewhere in the mount namespace"
    assert f"{where} of process {process}" in found


def test_swap_is_refused(bench: Bench) -> None:
    must("mkswap", str(bench.device))
    if command("swapon", str(bench.device)).returncode:
        pytest.skip("swapon is refused here")
    try:
        assert f"holds the running system (swap {bench.device})" in bench.refused("unknown")
    finally:
        must("swapoff", str(bench.device))


def test_a_backing_file_of_another_loop_device_is_refused(bench: Bench) -> None:
    with loop_device(bench.image) as other:
        found = bench.refused(*EVERY_NAME)
        assert f"{other.name}, a loop device over the same file is active; detach it" in found


def test_a_drive_that_another_program_locked_is_refused(bench: Bench) -> None:
    with subprocess.Popen(["flock", str(bench.device), "sleep", "60"]) as held:
        try:
            time.sleep(0.3)
            found = bench.refused()
        finally:
            subprocess.run(["pkill", "-P", str(held.pid)], check=False)
            held.kill()
    assert "is held by what can't be seen from here" in found


def test_an_efi_system_partition_is_refused_mounted_or_not(bench: Bench) -> None:
    uuid = write_gpt(bench.image, [(UUID(EFI_TYPE), 2048, 40960)])
    must("blockdev", "--flushbufs", str(bench.device))
    assert "has an EFI system partition" in bench.refused(f"gpt:{uuid}")


def test_signatures_must_be_named_with_their_uuids(bench: Bench) -> None:
    uuid = write_gpt(bench.image, [(LINUX_DATA, 2048, 22527)])
    must("blockdev", "--flushbufs", str(bench.device))
    add_partition(bench.device, "1", "2048", "20480")
    must("mkfs.ext4", "-q", f"{bench.device}p1")
    ext4 = must("blkid", "-p", "-o", "value", "-s", "UUID", f"{bench.device}p1").strip()
    found = bench.refused()
    assert "holds gpt and ext4; to overwrite it, set target.overwrite=[" in found
    assert f"[gpt:{uuid},ext4:{ext4}]" in found
    assert "holds ext4; to overwrite it, set target.overwrite=[" in bench.refused(f"gpt:{uuid}")
    assert "holds gpt; to overwrite it" in bench.refused(f"ext4:{ext4}")
    assert "to overwrite it" in bench.refused(f"gpt:{uuid}", f"ext4:{uuid}")
    bench.accepted(f"gpt:{uuid}", f"ext4:{ext4}")


def test_content_without_a_signature_is_unknown(bench: Bench) -> None:
    bench.write(8 << 20, b"raw database" * 100_000)
    assert "holds blocks that are neither blank nor ours" in bench.refused()
    bench.accepted("unknown")


def test_content_outside_of_a_named_partition_is_unknown(bench: Bench) -> None:
    uuid = write_gpt(bench.image, [(LINUX_DATA, 2048, 8191)])
    must("blockdev", "--flushbufs", str(bench.device))
    bench.write(12 << 20, b"raw database" * 100_000)
    assert "neither blank nor ours" in bench.refused(f"gpt:{uuid}")


def test_both_ends_are_looked_at() -> None:
    offsets = sample_offsets(1 << 40, "S1")
    assert (offsets[0], offsets[-1]) == (0, (1 << 40) - 4096)
    assert 1024 <= len(offsets) <= 1026
    assert max(b - a for a, b in pairwise(offsets)) < 2 << 30
    assert offsets != sample_offsets(1 << 40, "S2")
    assert sample_offsets(10000, "S1") == [0, 4096]


def test_stamps_are_ours_only_with_a_nonce_of_this_drive(bench: Bench) -> None:
    bench.stamp(nonce=41)
    assert "neither blank nor ours" in bench.refused()
    bench.completed("unknown", nonce=42)
    guard = bench.accepted()
    assert guard.content is not None
    assert not guard.content.unknown
    bench.stamp(nonce=43)
    assert "neither blank nor ours" in bench.refused()


def test_a_stamp_in_the_wrong_place_is_not_ours(bench: Bench) -> None:
    bench.began(bench.accepted(), "run-1", nonce=42)
    content = np.random.default_rng(1).integers(0, 256, SIZE_BYTES, np.uint8)
    seal(content, BlockIdentity(42, 7), first_block=1)
    bench.write(0, content.tobytes())
    assert "neither blank nor ours" in bench.refused()


EXT4 = "ext4:11111111-2222-3333-4444-555555555555"


def test_what_an_interrupted_run_left_has_to_be_named_again(bench: Bench) -> None:
    must("mkfs.ext4", "-q", "-U", EXT4.partition(":")[2], str(bench.device))
    bench.began(bench.accepted(EXT4), "run-1", nonce=42)  # killed before its first byte
    assert "holds ext4; to overwrite it, set target.overwrite=[" in bench.refused()
    bench.log.end("run-1", "aborted")
    assert "holds ext4; to overwrite it, set target.overwrite=[" in bench.refused()
    bench.accepted(EXT4)


def test_unknown_blocks_that_an_interrupted_run_left_have_to_be_named_again(bench: Bench) -> None:
    bench.write(0, b"unknown " * (SIZE_BYTES // 8))
    bench.began(bench.accepted("unknown"), "run-1", nonce=42)
    bench.stamp(nonce=42, size_bytes=SIZE_BYTES // 2)
    assert "neither blank nor ours" in bench.refused()
    bench.accepted("unknown")


def test_a_blank_drive_that_could_hold_data_needs_a_name(bench: Bench) -> None:
    bench.accepted()
    bench.allocate()
    assert (
        "possibly data that sampling has missed; to overwrite it, set target.overwrite="
        in bench.refused()
    )
    bench.accepted("unsampled")


def test_data_between_the_samples_is_not_overlooked(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, size_bytes=1 << 30) as device:
        bench = Bench(device, image, RawWriteLog(tmp_path / "state"))
        name = bench.accepted().name
        assert name is not None
        sampled = set(sample_offsets(1 << 30, name.serial))
        free = next(at for at in range(1 << 20, 1 << 30, 4096) if at not in sampled)
        bench.write(free, b"x" * 4096)
        found = bench.guard().inspect()
        assert found.content is not None
        assert found.content.blank_count >= 1024
        assert found.findings == ("unsampled",)


def test_own_blocks_prove_nothing_about_the_rest_of_a_drive(bench: Bench) -> None:
    bench.began(bench.accepted(), "run-1", nonce=42, covered_bytes=SIZE_BYTES // 2)
    bench.stamp(nonce=42, size_bytes=SIZE_BYTES // 2)
    bench.log.end("run-1", "complete")
    assert "sampling has missed" in bench.refused()
    bench.began(bench.accepted("unsampled"), "run-2", nonce=43)
    bench.stamp(nonce=43)
    assert "sampling has missed" in bench.refused()  # it has not completed
    bench.log.end("run-2", "aborted")
    assert "sampling has missed" in bench.refused()
    bench.completed("unsampled", nonce=44)
    bench.accepted()


def test_a_full_pass_counts_until_something_else_is_found(bench: Bench) -> None:
    bench.completed(nonce=42)
    bench.accepted()
    bench.write(8 << 20, b"raw database" * 100_000)
    for run_id in ("run-3", "run-4"):  # as the runs of a sweep, which names it once
        guard = bench.accepted("unknown")
        bench.began(guard, run_id, nonce=44, covered_bytes=0)
        bench.stamp(nonce=44)
        bench.log.end(run_id, "complete", own_bytes=SIZE_BYTES, left=guard.read_counts())
        found = bench.refused()
        assert f"holds possibly other data ({run_id} found some" in found
    assert (
        "and no run wrote over all of the drive since); to overwrite it, set target.overwrite="
        in found
    )
    bench.completed("unknown", nonce=45)
    bench.accepted()


OTHERS = "holds possibly other data (since run-42, "
NAMED = "to overwrite it, set target.overwrite=[unknown]"


@pytest.fixture
def large(tmp_path: Path) -> Iterator[Bench]:
    """A loop device on which 128 KiB fit between two samples."""
    image = tmp_path / "large.img"
    with loop_device(image, size_bytes=512 << 20) as device:
        yield Bench(device, image, RawWriteLog(tmp_path / "state"))


def stamp_samples(bench: Bench, nonce: int) -> int:
    """Make a run that claims to have filled the drive; return where 128 KiB are not sampled.

    It writes the sampled blocks alone: no other one is ever read.
    """
    guard = bench.accepted()
    assert guard.name is not None
    offsets = sample_offsets(guard.identity.size_bytes, guard.name.serial)
    bench.began(guard, f"run-{nonce}", nonce, covered_bytes=guard.identity.size_bytes)
    with bench.device.open("r+b") as device:
        for offset in offsets:
            content = np.zeros(4096, np.uint8)
            seal(content, BlockIdentity(nonce, 7), offset_bytes=offset)
            device.seek(offset)
            device.write(content.tobytes())
        device.flush()
        os.fsync(device.fileno())
    own_bytes, left = len(offsets) * 4096, guard.read_counts()
    bench.log.end(f"run-{nonce}", "complete", own_bytes=own_bytes, left=left)
    gap = next(first for first, last in pairwise(offsets) if last - first > (132 << 10))
    return gap + 4096


def test_data_between_the_samples_of_a_filled_drive_is_not_overwritten(large: Bench) -> None:
    at = stamp_samples(large, nonce=42)
    large.accepted()
    large.write(at, b"precious" * 16384)
    found = large.guard().inspect()
    assert found.content is not None
    assert not found.content.unknown
    assert not found.content.blank
    (refusal,) = found.refusals
    words = f"{OTHERS}131,072 bytes were written by the kernel's count); {NAMED}"
    assert refusal.sentence == f"{large.device} {words}"
    large.accepted("unknown")


def test_a_write_that_the_kernel_still_keeps_in_memory_is_counted(large: Bench) -> None:
    at = stamp_samples(large, nonce=42)
    with large.device.open("rb"), large.device.open("r+b") as device:
        device.seek(at)  # another opener: the end of this one does not write anything back
        device.write(b"precious" * 16384)
        device.flush()
        found = large.guard().inspect()
    assert "131,072 bytes were written" in " ".join(each.sentence for each in found.refusals)


def test_a_write_to_the_backing_file_is_not_overlooked(large: Bench) -> None:
    at = stamp_samples(large, nonce=42)
    large.accepted()
    with large.image.open("r+b") as file:
        file.seek(at)
        file.write(b"precious" * 16384)
    assert f"{OTHERS}its backing file was changed); {NAMED}" in large.refused()


def test_discarded_blocks_are_no_longer_known(large: Bench) -> None:
    at = stamp_samples(large, nonce=42)
    must("blkdiscard", "--offset", str(at), "--length", "131072", str(large.device))
    assert f"{OTHERS}131,072 bytes were discarded by the kernel's count)" in large.refused()


def test_a_drive_that_was_attached_again_is_no_longer_known(bench: Bench) -> None:
    bench.completed(nonce=42)
    bench.accepted()
    must("losetup", "--detach", str(bench.device))
    must("losetup", str(bench.device), str(bench.image))
    assert f"{OTHERS}the kernel's count of writes began anew, as the device" in bench.refused()


def test_a_device_whose_writes_are_not_counted_is_never_known(bench: Bench) -> None:
    counting = Path(f"/sys/block/{bench.device.name}/queue/iostats")
    try:
        counting.write_text("0")
        bench.completed(nonce=42)
        assert "the kernel counted 0 bytes while run-42 wrote 16,777,216" in bench.refused()
        counting.write_text("1")
        bench.completed("unknown", nonce=43)
        bench.accepted()
        counting.write_text("0")
        assert "since run-43, the kernel's count of writes was switched" in bench.refused()
    finally:
        counting.write_text("1")


def test_a_write_while_a_run_writes_leaves_the_drive_unknown(bench: Bench) -> None:
    guard = bench.accepted()
    bench.began(guard, "run-42", nonce=42)
    bench.write(8 << 20, b"precious")
    bench.stamp(nonce=42)
    bench.log.end("run-42", "complete", own_bytes=SIZE_BYTES, left=guard.read_counts())
    words = f"the kernel counted {SIZE_BYTES + 4096:,} bytes while run-42 wrote {SIZE_BYTES:,}"
    assert words in bench.refused()


@pytest.mark.parametrize("status", ["aborted", "failed", None])
def test_a_run_that_did_not_complete_leaves_the_drive_unknown(
    bench: Bench, status: Literal["aborted", "failed"] | None
) -> None:
    bench.completed(nonce=41)
    bench.began(bench.accepted(), "run-42", nonce=42)
    bench.stamp(nonce=42)
    if status is not None:
        bench.log.end("run-42", status)
    words = "run-42 did not complete, so what was written since its last write is unknown"
    assert f"holds possibly other data ({words}); {NAMED}" in bench.refused()
    bench.completed("unknown", nonce=43)
    bench.accepted()


def test_a_completed_run_without_counts_at_its_end_leaves_the_drive_unknown(bench: Bench) -> None:
    bench.began(bench.accepted(), "run-42", nonce=42)
    bench.stamp(nonce=42)
    bench.log.end("run-42", "complete")  # as a run over several drives, or of an older version
    words = "the counts at the end of run-42 are missing, so what was written since is unknown"
    assert f"holds possibly other data ({words}); {NAMED}" in bench.refused()


def test_an_overwritten_file_system_needs_a_new_name(bench: Bench) -> None:
    must("mkfs.ext4", "-q", "-U", EXT4.partition(":")[2], str(bench.device))
    bench.completed(EXT4, nonce=42)
    bench.accepted()
    bench.accepted(EXT4)
    must("mkfs.ext4", "-q", "-F", "-U", EXT4.partition(":")[2], str(bench.device))
    assert "holds ext4; to overwrite it, set target.overwrite=[" in bench.refused()


def test_a_hard_link_of_the_backing_file_is_the_same_file(bench: Bench) -> None:
    link = bench.image.with_name("link.img")
    link.hardlink_to(bench.image)
    with loop_device(link) as other:
        assert f"{other.name}, a loop device over the same file" in bench.refused(*EVERY_NAME)


@pytest.mark.parametrize("change", ["deleted", "replaced", "disguised"])
def test_a_backing_file_that_is_not_at_its_path_is_refused(bench: Bench, change: str) -> None:
    bench.accepted()
    bench.image.unlink()
    if change == "replaced":
        bench.image.write_bytes(bytes(SIZE_BYTES))
    elif change == "disguised":
        bench.image.with_name("drive.img (deleted)").write_bytes(bytes(SIZE_BYTES))
    assert "over a file that is not at its path any more" in bench.refused()


def test_a_loop_device_over_a_device_is_refused_whatever_its_node(
    bench: Bench, tmp_path: Path
) -> None:
    number, node = bench.device.stat().st_rdev, tmp_path / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, number)
    with loop_device(node) as device:
        node.unlink()
        upper = Bench(device, node, bench.log)
        assert f"over another device ({bench.device.name}); name that one" in upper.refused()


@contextmanager
def mounted_elsewhere(folder: Path, device: str) -> Iterator[int]:
    """Mount a device in a mount namespace of a process, below ``folder``; yield its number."""
    at = folder / "elsewhere"
    at.mkdir()
    script = f"mount {device} {at} && echo $$ && exec cat"
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True) as held:
        assert held.stdin is not None
        assert held.stdout is not None
        line = held.stdout.readline()
        if not line:
            pytest.skip("no mount namespace here")
        try:
            yield int(line)
        finally:
            held.stdin.close()


@contextmanager
def holding(path: Path, script: str) -> Iterator[int]:
    """Start a process that is no child of this one and has a device open; yield its number."""
    code = "import fcntl, os, sys, time\n{}\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    words = ["setsid", "--fork", sys.executable, "-c", code.format(script), str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        process = int(started.stdout.readline())
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.mark.parametrize("part", ["", "p1"])
def test_a_writer_without_exclusive_access_is_found(bench: Bench, part: str) -> None:
    if part:
        add_partition(bench.device, "1", "2048", "20480")
    device = Path(f"{bench.device}{part}")
    with holding(device, "held = os.open(sys.argv[1], os.O_RDWR)") as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it open for writing; end that first" in found
    with holding(device, "held = os.open(sys.argv[1], os.O_RDONLY)"):
        bench.accepted()


THREAD = """import ctypes, mmap, threading
ready = threading.Event()
libc = ctypes.CDLL(None, use_errno=True)
def is_ended():
    with open(f"/proc/{os.getpid()}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "Z"
def hold():
    assert libc.unshare($flags) == 0
    held = os.open(sys.argv[1], os.O_RDWR)
    if $maps:
        mapped = mmap.mmap(held, 4096)
        os.closerange(3, 64)
    ready.set()
    while $ends and not is_ended():
        time.sleep(0.01)
    if $ends:
        print(os.getpid(), flush=True)
    time.sleep(60)
threading.Thread(target=hold, daemon=True).start()
ready.wait()
if $ends:
    libc.syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""A thread uses a device. CLONE_FILES of unshare(2) gives it a table of open files of its own;
``exit`` as a system call ends the main thread alone."""


@pytest.mark.parametrize("ends", [True, False], ids=["main thread ended", "main thread lives"])
@pytest.mark.parametrize("flags", [0, 0x400], ids=["shared files", "own files"])
@pytest.mark.parametrize("maps", [True, False], ids=["mapped", "open"])
def test_a_thread_that_uses_the_drive_is_found(
    bench: Bench, *, ends: bool, flags: int, maps: bool
) -> None:
    script = Template(THREAD).substitute(flags=flags, maps=maps, ends=ends)
    with holding(bench.device, script) as process:
        assert (not os.listdir(f"/proc/{process}/task/{process}/fd")) == ends  # noqa: PTH208
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert f"has it {'mapped' if maps else 'open'} for writing; end that first" in found
    assert found.count("process ") == 1


def test_a_program_that_opens_the_drive_for_a_moment_is_no_user(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As udev does, and ``losetup --find`` on its way to another device: it ends once seen."""
    seen: list[str] = []

    def look(process: str, *words: Any) -> str | None:
        use = use_of(process, *words)
        if use is not None:
            seen.append(use)
            os.kill(int(Path(process).name), signal.SIGKILL)
        return use

    use_of = device_users._use_of
    monkeypatch.setattr(device_users, "_use_of", look)
    with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"):
        bench.accepted()
    assert seen == ["open for writing"]


def test_a_writer_of_the_backing_file_is_found(bench: Bench) -> None:
    with holding(bench.image, "held = os.open(sys.argv[1], os.O_WRONLY)") as process:
        assert f"process {process} (python" in bench.refused(*EVERY_NAME)


MAPPED = """import mmap
held = os.open(sys.argv[1], os.{})
mapped = mmap.mmap(held, 4096, flags=mmap.{}, prot=mmap.{})
os.closerange(3, 64)"""
"""Python keeps a copy of the descriptor of a mapping, which is closed too."""


@pytest.mark.parametrize("what", ["disk", "partition", "file"])
@pytest.mark.parametrize("protection", ["PROT_WRITE", "PROT_READ"])
def test_a_mapping_that_outlived_its_descriptor_is_found(
    bench: Bench, what: str, protection: str
) -> None:
    """A mapping to read of a file that was opened to write can be made writable at any time."""
    add_partition(bench.device, "1", "2048", "20480")
    places = {"disk": bench.device, "partition": Path(f"{bench.device}p1"), "file": bench.image}
    with holding(places[what], MAPPED.format("O_RDWR", "MAP_SHARED", protection)) as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it mapped for writing; end that first" in found


@pytest.mark.parametrize(
    ("mode", "flags", "protection"),
    [("O_RDONLY", "MAP_SHARED", "PROT_READ"), ("O_RDWR", "MAP_PRIVATE", "PROT_WRITE")],
)
def test_a_mapping_that_can_not_write_is_no_user(
    bench: Bench, mode: str, flags: str, protection: str
) -> None:
    with holding(bench.device, MAPPED.format(mode, flags, protection)):
        bench.accepted()


REGISTERED = """import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
ring = call(425, 4, ctypes.create_string_buffer(120))
held = os.open(sys.argv[1], os.O_RDWR)
assert ring >= 0 and call(427, ring, 2, (ctypes.c_int * 1)(held), 1) == 0
os.close(held)"""
"""``io_uring_setup``, and ``io_uring_register`` with ``IORING_REGISTER_FILES``."""


def test_a_file_that_only_io_uring_holds_is_found(bench: Bench) -> None:
    with holding(bench.device, REGISTERED) as process:
        found = bench.refused(*EVERY_NAME)
    assert f"process {process} (python" in found
    assert "has it registered with io_uring, perhaps for writing; end that first" in found


def test_a_file_of_the_drives_name_that_io_uring_holds_is_no_user(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / bench.device.name
    file.touch()
    with holding(file, REGISTERED):
        bench.accepted()


def test_a_file_system_on_a_loop_device_within_the_drive_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    with loop_device(bench.device, "--offset", "1048576") as upper:
        must("mkfs.ext4", "-q", str(upper))
        over = f"{upper.name}, a loop device over {bench.device.name} from byte 1048576"
        found = bench.refused(*EVERY_NAME)
        assert f"{bench.device} is in use: {over} is active; detach it (losetup" in found
        with mounted(tmp_path / "mounted", str(upper)) as at:
            assert f"{over}, is mounted at {at}" in bench.refused(*EVERY_NAME)
        with mounted_elsewhere(tmp_path, str(upper)) as process:
            found = bench.refused(*EVERY_NAME)
            assert f"{over}, is mounted at {tmp_path}/elsewhere in the mount namespace" in found
            assert f"of process {process}" in found
    assert bench.guard().inspect().is_final is False


def test_a_mount_of_a_loop_device_over_a_loop_device_is_refused(
    bench: Bench, tmp_path: Path
) -> None:
    add_partition(bench.device, "1", "2048", "28672")
    part = Path(f"{bench.device}p1")
    with (
        loop_device(part, "--offset", "4096") as middle,
        loop_device(middle, "--offset", "8192") as upper,
    ):
        must("mkfs.ext4", "-q", str(upper))
        with mounted(tmp_path / "mounted", str(upper)) as at:
            found = bench.refused(*EVERY_NAME)
    lower = f"{middle.name}, a loop device over {part.name} from byte 4096"
    assert f"{upper.name}, a loop device over {lower} from byte 8192, is mounted at {at}" in found


def test_a_loop_device_within_the_drive_is_found_whatever_its_path(
    bench: Bench, tmp_path: Path
) -> None:
    node = tmp_path / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, bench.device.stat().st_rdev)
    with loop_device(node, "--offset", "4096") as upper:
        node.unlink()
        assert f"{upper.name}, a loop device over {bench.device.name}" in bench.refused()


def test_swap_on_a_loop_device_within_the_drive_is_the_system(bench: Bench) -> None:
    with loop_device(bench.device, "--offset", "1048576") as upper:
        must("mkswap", str(upper))
        if command("swapon", str(upper)).returncode:
            pytest.skip("swapon is refused here")
        try:
            found = bench.refused(*EVERY_NAME)
        finally:
            must("swapoff", str(upper))
    assert f"holds the running system (swap {upper})" in found


def test_a_user_that_comes_later_is_found_before_the_first_byte(bench: Bench) -> None:
    guard = bench.guard()
    claim = guard.claim()
    try:
        guard.require_unused()
        refused = pytest.raises(TargetError, match="a loop device over loop")
        with loop_device(bench.device, "--offset", "4096"), refused:
            guard.require_unused()
        refused = pytest.raises(TargetError, match="has it open for writing")
        with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"), refused:
            guard.require_unused()
    finally:
        claim.close()


def test_what_a_container_can_not_see_has_to_be_named(bench: Bench) -> None:
    """From another PID namespace the processes of the host are hidden, and so are their files."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom tests.core.storage.test_guard import Bench\n"
        "from wattload.core.storage.raw_writes import RawWriteLog\n"
        "bench = Bench(Path(sys.argv[1]), Path(sys.argv[2]), RawWriteLog(Path(sys.argv[3])))\n"
        "print(*[each.sentence for each in bench.guard().inspect().refusals], sep='\\n')\n"
        "guard = bench.accepted('unseen')\nprint(guard.findings, guard.overwritten)\n"
    )
    inside = ("unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code)
    with holding(bench.device, "held = os.open(sys.argv[1], os.O_RDWR)"):
        shown = must(*inside, str(bench.device), str(bench.image), str(bench.log.folder))
    first, second = shown.splitlines()
    assert first == (
        f"{bench.device} may be in use by what can't be seen from here (processes outside of this "
        "container); run as root on the host itself, or make sure that nothing uses it, and add "
        "unseen to target.overwrite="
    )
    assert second == "('unseen',) ('unseen',)"
    bench.accepted()


LOCKED = "held = os.open(sys.argv[1], os.O_RDONLY)\nfcntl.flock(held, fcntl.LOCK_SH)"


def test_a_lock_for_a_moment_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """As udev's while it handles a change: it ends once it was met."""
    waits: list[float] = []
    monkeypatch.setattr(guard_module, "LOCK_S", 60.0)
    with holding(bench.device, LOCKED) as process:

        def wait(seconds: float) -> None:
            waits.append(seconds)
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            time.sleep(seconds)

        clock = SimpleNamespace(monotonic=time.monotonic, sleep=wait)
        monkeypatch.setattr(guard_module, "time", clock)
        bench.accepted()
    assert waits


def test_a_lock_that_stays_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "LOCK_S", 0.1)
    with holding(bench.device, LOCKED):
        assert "has had its device node locked for 0.1 s; end that, or wait" in bench.refused()


def test_a_lock_of_bytes_is_found(bench: Bench) -> None:
    script = "held = os.open(sys.argv[1], os.O_RDONLY)\nfcntl.lockf(held, fcntl.LOCK_SH, 1, 100)"
    with holding(bench.device, script) as process:
        assert f"process {process} (python" in bench.refused()


def test_a_held_drive_can_be_neither_mounted_nor_formatted(bench: Bench, tmp_path: Path) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    found = bench.guard().inspect().findings
    claim = bench.guard(*found).claim()
    try:
        before = digest(bench.device)
        (tmp_path / "at").mkdir()
        assert command("mkfs.ext4", "-q", str(bench.device)).returncode
        assert command("mount", str(bench.device), str(tmp_path / "at")).returncode
        assert command("swapon", str(bench.device)).returncode
        assert digest(bench.device) == before
        with pytest.raises(TargetError, match="is held by what can't be seen from here"):
            bench.guard(*found).claim()
    finally:
        claim.close()
    bench.accepted(*found)


def test_an_unseen_user_does_not_make_the_content_unknown(bench: Bench) -> None:
    bench.completed(nonce=42)
    guard = bench.accepted()
    assert guard.name is not None
    for findings, covered_bytes in ((("unseen",), SIZE_BYTES), (("unsampled",), 0)):
        guard.findings = findings
        bench.began(guard, f"run-{findings}", nonce=43, covered_bytes=0)
        assert bench.log.of_drive(guard.name.serial).covered_bytes == covered_bytes


def test_an_exchanged_drive_is_refused(bench: Bench) -> None:
    guard = bench.guard()
    other = bench.image.with_name("other.img")
    with other.open("wb") as file:
        file.truncate(SIZE_BYTES)
    must("losetup", "--detach", str(bench.device))
    must("losetup", str(bench.device), str(other))
    before = digest(bench.device)
    exchanged = pytest.raises(TargetError, match=r"was exchanged \(disk sequence \d+, now \d+\)")
    with bench.device.open("rb") as opened, exchanged:
        require_same(opened.fileno(), guard.identity)
    with pytest.raises(TargetError, match=r"is not the drive of that serial"):
        guard.claim()
    assert digest(bench.device) == before


def test_a_plan_changes_nothing_and_holds_nothing(bench: Bench) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    before = digest(bench.device)
    found = bench.guard().inspect()
    assert [each.can_be_lifted for each in found.refusals] == [True]
    assert digest(bench.device) == before
    assert not bench.log.path.exists()


@dataclass
class FakeNvme:
    """A real loop device that a made-up sysfs shows as the NVMe namespace ``nvme0n1``."""

    bench: Bench
    roots: Roots

    @property
    def disk(self) -> Path:
        return self.roots.sys / "devices/nvme0/nvme0n1"

    def refusals(
        self, facts: NvmeFacts | None = HEALTHY, *, serial: str = "S1", **permitted: Any
    ) -> list[str]:
        found = self.guard(facts, serial=serial, **permitted).inspect()
        return [each.sentence for each in found.refusals]

    def guard(
        self, facts: NvmeFacts | None = HEALTHY, *, serial: str = "S1", **permitted: Any
    ) -> Guard:
        def read(controller: str, namespace: int, node: Path) -> NvmeFacts:
            assert (controller, namespace, node) == ("nvme0", 1, self.bench.device)
            return refuse_nvme(controller, namespace, node) if facts is None else facts

        (target,) = resolve_targets(
            [self.bench.device], host="here", roots=self.roots, kind=TargetKind.BLOCK
        )
        permission = {"serials": (serial,), "overwrite": frozenset(), "shared": False, **permitted}
        return Guard(
            target,
            Permission(**permission),
            self.bench.log,
            read_nvme=read,
            is_sealed=is_sealed,
            roots=self.roots,
        )

    def completed(self, facts: NvmeFacts = HEALTHY, **permitted: Any) -> None:
        """Make a run that writes the whole drive; the counter of the kernel is the real one."""
        guard = self.guard(facts, **permitted)
        guard.inspect()
        self.bench.began(guard, "run-42", nonce=42)
        self.bench.stamp(nonce=42)
        left = guard.read_counts()
        self.bench.log.end("run-42", "complete", own_bytes=SIZE_BYTES, left=left)


def fill(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(exist_ok=True)
        place.write_text(f"{text}\n")


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


def test_a_healthy_drive_of_one_host_is_accepted(nvme: FakeNvme) -> None:
    assert nvme.refusals() == []


def test_a_drive_of_an_earlier_boot_is_no_longer_known(nvme: FakeNvme) -> None:
    nvme.completed()
    assert nvme.refusals() == []
    (nvme.roots.proc / "sys/kernel/random/boot_id").write_text("b2\n")
    words = "the kernel's count of writes began anew, as the host was started again"
    assert f"{OTHERS}{words}); {NAMED}" in nvme.refusals()[0]
    assert nvme.refusals(overwrite=frozenset({"unknown"})) == []


def test_a_kernel_that_does_not_number_disks_knows_no_drive(nvme: FakeNvme) -> None:
    (nvme.disk / "diskseq").unlink()
    nvme.completed()
    assert f"{OTHERS}this kernel does not number disks" in nvme.refusals()[0]


def test_writes_of_another_host_are_seen_from_a_step_of_the_drives_own_count(
    nvme: FakeNvme,
) -> None:
    nvme.completed(replace(HEALTHY, written_bytes=1_024_000))
    found = nvme.guard(replace(HEALTHY, written_bytes=1_024_000)).inspect()
    assert found.refusals == ()
    assert found.untouched.endswith(
        "in steps of 512,000 B: less than that from another host can't be seen"
    )
    words = "its own count of bytes written, in steps of 512,000, went from 1,024,000 to 1,536,000"
    refused = nvme.refusals(replace(HEALTHY, written_bytes=1_536_000))
    assert f"{OTHERS}{words}); {NAMED}" in refused[0]


def test_a_drive_of_several_controllers_is_never_known(nvme: FakeNvme) -> None:
    pair = replace(HEALTHY, is_shareable=True, controller_count=2)
    nvme.completed(pair, shared=True)
    words = "another host may write to it, and nothing counts what it writes"
    assert f"holds possibly other data ({words}); {NAMED}" in nvme.refusals(pair, shared=True)[0]


def test_stamps_disprove_a_drive_that_claims_to_hold_nothing(nvme: FakeNvme) -> None:
    assert nvme.refusals() == []
    nvme.bench.began(nvme.guard(), "run-42", nonce=42, covered_bytes=0)
    nvme.bench.stamp(nonce=42, size_bytes=SIZE_BYTES // 2)
    nvme.bench.log.end("run-42", "complete")
    assert "target.overwrite=[unsampled]" in nvme.refusals()[0]


def test_a_drive_that_does_not_tell_its_health_is_refused(nvme: FakeNvme) -> None:
    assert "the health of" in nvme.refusals(None)[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"critical_warning": 4}, "reports a critical warning (0x04)"),
        ({"spare_percent": 10}, "has 10 % of its spare left, and its threshold is 10 %"),
        ({"percentage_used": 100}, "has used 100 % of its endurance; target.overwrite= must name"),
        ({"is_shareable": True}, "another host may write to it"),
        ({"is_reserved": True}, "is reserved by a host"),
        ({"controller_count": 2}, "has 2 controllers in its subsystem"),
        ({"used_bytes": 4096}, "target.overwrite=[unsampled]"),
    ],
)
def test_a_drive_in_doubt_is_refused(nvme: FakeNvme, changes: dict[str, Any], words: str) -> None:
    (found,) = nvme.refusals(replace(HEALTHY, **changes))
    assert words in found


def test_doubts_are_lifted_by_their_names_and_health_is_not(nvme: FakeNvme) -> None:
    shared = replace(HEALTHY, is_shareable=True, is_reserved=True, controller_count=2)
    assert nvme.refusals(shared, shared=True) == []
    doubts = replace(HEALTHY, used_bytes=4096, percentage_used=120)
    assert nvme.refusals(doubts, overwrite=frozenset({"unsampled", "worn"})) == []
    broken = replace(HEALTHY, critical_warning=1)
    everything = frozenset({"unsampled", "worn", "unknown"})
    assert nvme.refusals(broken, overwrite=everything, shared=True)


def test_a_drive_on_a_network_is_shared(nvme: FakeNvme) -> None:
    (nvme.roots.sys / "devices/nvme0/transport").write_text("tcp\n")
    assert "is attached by tcp" in nvme.refusals()[0]


@pytest.mark.parametrize(
    ("place", "model", "words"),
    [
        ("pci/ata3/host2/target2:0:0/2:0:0:0/block/sda", "ATA Samsung SSD 870", ""),
        ("pci/usb2/2-1/host4/target4:0:0/4:0:0:0/block/sda", "SanDisk Extreme", ""),
        ("pci/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0/block/sda", "SEAGATE ST18", ""),
        (
            "platform/host3/session1/target3:0:0/3:0:0:0/block/sda",
            "LIO-ORG disk",
            "not known to be",
        ),
        ("pci/host5/rport-5:0-2/target5:0:0/5:0:0:0/block/sda", "NETAPP LUN", "not known to be"),
        ("pci/host6/target6:0:0/6:0:0:0/block/sda", "Linux scsi_debug", "not known to be private"),
        ("pci/virtio2/host7/target7:0:0/7:0:0:0/block/sda", "QEMU QEMU HARDDISK", "a hypervisor's"),
        ("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda", "ATA QEMU HARDDISK", "a hypervisor's"),
        ("pci/end_device-1:0/target1:0:0/1:0:0:0/block/sda", "VMware Virtual disk", "a hypervisor"),
        ("pci/virtio1/block/vda", "", "a hypervisor's disk"),
    ],
)
def test_only_what_is_known_to_be_private_is_not_shared(
    tmp_path: Path, place: str, model: str, words: str
) -> None:
    folder = tmp_path / "devices" / place
    vendor, _, name = model.partition(" ")
    fill(folder, size="2048", dev="8:0", device__vendor=vendor, device__model=name)
    stack = block_node(folder, Roots(sys=tmp_path), lambda _: None)
    found = attachment_text(stack, folder)
    assert words in found if words else not found


def test_a_device_in_memory_has_a_name_that_its_successor_has_not(tmp_path: Path) -> None:
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)
    fill(roots.proc / "sys/kernel/random", boot_id="b1")

    def name_of(name: str, **files: str) -> DriveName:
        folder = roots.sys / "block" / name
        fill(folder, size="2048", dev="1:0", **files)
        return drive_name(folder, folder, block_node(folder, roots, lambda _: None), roots)

    ram = name_of("ram0", diskseq="7")
    assert (ram.serial, ram.accepted) == ("ram0:7:b1", frozenset({"ram0:7"}))
    assert name_of("pmem0", device__uuid="u1").accepted == {"u1"}
    with pytest.raises(TargetError, match=r"can't be told from other drives"):
        name_of("pmem1")
    assert name_of("zram0").accepted == {"zram0"}


def test_one_of_several_namespaces_needs_its_number(nvme: FakeNvme) -> None:
    (nvme.disk.parent / "nvme0n2").mkdir()
    assert "is not the drive of that serial" in nvme.refusals()[0]
    assert nvme.refusals(serial="S1:1") == []
    assert nvme.refusals(serial="S1:2")


def test_a_zoned_drive_is_refused(nvme: FakeNvme) -> None:
    (nvme.disk / "queue/zoned").write_text("host-managed\n")
    assert "is zoned (host-managed)" in nvme.refusals()[0]


@pytest.mark.parametrize("missing", ["ro", "queue/zoned", "holders"])
def test_what_can_not_be_read_refuses(nvme: FakeNvme, missing: str) -> None:
    place = nvme.disk / missing
    if place.is_dir():
        place.rmdir()
    else:
        place.unlink()
    assert "can't be read" in nvme.refusals()[0]


@pytest.mark.parametrize(
    ("files", "words"),
    [({"dm__name": "vg-data"}, "holder (vg-data)"), ({"md__level": "raid1"}, "holder")],
)
def test_holders_are_named(
    nvme: FakeNvme, tmp_path: Path, files: dict[str, str], words: str
) -> None:
    holder = tmp_path / "sys/devices/virtual/holder"
    fill(holder, dev="252:7", **files)
    (holder / "holders").mkdir()
    (nvme.disk / "holders/holder").symlink_to(holder)
    assert f"{words} over nvme0n1 is active; stop it" in nvme.refusals()[0]
    with (nvme.roots.proc / "self/mountinfo").open("a") as mounts:
        mounts.write("28 27 252:7 / /data rw - ext4 /dev/mapper/data rw\n")
    assert f"{words} over nvme0n1 is mounted at /data" in nvme.refusals()[0]


LIO_FILE = "Status: ACTIVATED\n    TCM FILEIO ID: 0    File: {}  Size: 4096  Mode: O_DSYNC"
LIO_BLOCK = "iBlock device: sda  UDEV PATH: {}  readonly: 0"


@pytest.mark.parametrize(
    ("place", "text", "path", "who"),
    [
        ("nvmet/subsystems/s/namespaces/1/device_path", "{}", "/dev/disk/by-id/x", "nvmet"),
        ("nvmet/subsystems/s/namespaces/1/device_path", "{}", "/dev/gone/nvme0n1", "nvmet"),
        ("nvmet/subsystems/s/passthru/device_path", "{}", "/dev/nvme0", "nvmet"),
        ("target/core/fileio_0/disk/info", LIO_FILE, "/dev/disk/by-id/x", "LIO"),
        ("target/core/iblock_0/disk/info", LIO_BLOCK, "/dev/disk/by-id/x", "LIO"),
        ("usb_gadget/g/functions/mass_storage.0/lun.0/file", "{}", "/dev/disk/by-id/x", "a USB"),
    ],
)
def test_an_export_to_other_hosts_is_refused(
    nvme: FakeNvme, place: str, text: str, path: str, who: str
) -> None:
    """A made-up configfs: only the lab's kernel has these modules."""
    node, other = nvme.roots.top / "dev/disk/by-id/x", nvme.roots.top / "dev/null"
    node.parent.mkdir(parents=True)
    node.symlink_to(nvme.bench.device)
    other.symlink_to("/dev/null")
    export = nvme.roots.sys / "kernel/config" / place
    export.parent.mkdir(parents=True)
    export.write_text(text.format("/dev/null"))
    assert nvme.refusals() == []
    export.write_text(text.format(path))
    (found,) = nvme.refusals()
    assert f"is in use: {who}" in found
    assert f" exports {path} ({export.parent}); disable that first" in found
    (export.parent / "enable").write_text("0\n")
    assert nvme.refusals() == []


def test_exports_that_can_not_be_seen_have_to_be_named(nvme: FakeNvme) -> None:
    (nvme.roots.sys / "module/nvmet").mkdir(parents=True)
    (found,) = nvme.refusals()
    assert "(exports to other hosts, since configfs is not mounted)" in found
    assert nvme.refusals(overwrite=frozenset({"unseen"})) == []
    (nvme.roots.sys / "kernel/config/nvmet").mkdir(parents=True)
    assert nvme.refusals() == []


def test_a_loop_device_without_its_node_is_found_by_its_path_or_unseen(nvme: FakeNvme) -> None:
    """As in a container that has the host's sysfs and few of its device nodes."""
    fill(nvme.roots.sys / "block/loop7", dev="7:7", loop__backing_file="/dev/vdz", loop__offset="0")
    (found,) = nvme.refusals()
    assert (
        "may be in use by what can't be seen from here (what other loop devices are over)" in found
    )
    fill(nvme.roots.sys / "block/loop7", loop__backing_file="/nvme0n1", loop__offset="4096")
    (nvme.roots.sys / "block/loop7/holders").mkdir()
    found = nvme.refusals(overwrite=frozenset({"unseen"}))[0]
    assert "is in use: loop7, a loop device over nvme0n1 from byte 4096 is active" in found


def test_a_generic_node_of_the_drive_counts_as_the_drive(nvme: FakeNvme) -> None:
    """``/dev/null`` stands for the node, whose commands reach the same blocks."""
    fill(nvme.roots.sys / "class/nvme-generic/ng0n1", dev="1:3")
    process = nvme.roots.proc / "77"
    fill(process, comm="xnvme", stat="77 (xnvme) S 1", maps="")
    (process / "fd").mkdir()
    (process / "ns").symlink_to(nvme.roots.proc / "self/ns")
    (process / "fd/3").symlink_to("/dev/null")
    (found,) = nvme.refusals()
    assert "process 77 (xnvme) has it open for writing" in found


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("28 27 {} / / rw - ext4 /dev/nvme0n1 rw", "root"),
        ("28 27 {} / /boot rw - ext4 /dev/nvme0n1 rw", "/boot"),
        ("28 27 {} / /boot/efi rw - vfat /dev/nvme0n1 rw", "/boot/efi"),
    ],
)
def test_a_drive_of_the_system_is_refused(nvme: FakeNvme, line: str, held: str) -> None:
    number = (nvme.disk / "dev").read_text().strip()
    lines = [] if held == "root" else ["27 1 0:21 / / rw - tmpfs tmpfs rw"]
    text = "\n".join([*lines, line.format(number)])
    (nvme.roots.proc / "self/mountinfo").write_text(f"{text}\n")
    assert f"holds the running system ({held})" in nvme.refusals()[0]


def test_an_unknown_root_refuses_unless_only_an_overlay_hides_it(nvme: FakeNvme) -> None:
    mountinfo = nvme.roots.proc / "self/mountinfo"
    mountinfo.write_text("27 1 0:21 / / rw - zfs tank rw\n")
    assert "whether" in nvme.refusals()[0]
    mountinfo.write_text("27 1 0:21 / / rw - overlay overlay rw,upperdir=/gone/upper\n")
    assert nvme.refusals() == []


def test_a_damaged_log_unlocks_nothing(bench: Bench) -> None:
    bench.completed(nonce=42)
    bench.accepted()
    whole = bench.log.path.read_bytes()
    bench.log.path.write_bytes(whole.replace(b'"nonce":42', b'"nonce":43'))
    assert "line 1, is not as wattload wrote it" in bench.refused()
    bench.log.path.write_bytes(whole)
    bench.accepted()
    bench.log.path.chmod(0o666)
    assert "may be written by other users" in bench.refused()


def test_a_log_cut_by_whole_rows_unlocks_nothing(bench: Bench) -> None:
    bench.completed(nonce=42)
    bench.completed(nonce=43)
    rows = bench.log.path.read_bytes().splitlines(keepends=True)
    for count in range(len(rows)):
        bench.log.path.write_bytes(b"".join(rows[:count]))
        assert "does not end with the row that" in bench.refused()
    bench.log.path.unlink()
    assert "does not end with the row that" in bench.refused()
    bench.log.path.write_bytes(b"".join(rows))
    bench.accepted()


def test_a_crash_between_a_row_and_its_note_locks_nobody_out(bench: Bench) -> None:
    last = bench.log.folder / LAST_NAME
    bench.began(bench.accepted(), "run-1", nonce=42)
    noted = last.read_bytes()
    last.unlink()
    bench.accepted()
    last.write_bytes(noted)
    bench.began(bench.accepted(), "run-2", nonce=43)
    last.write_bytes(noted)
    bench.began(bench.accepted(), "run-3", nonce=44)
    name = bench.accepted().name
    assert name is not None
    assert bench.log.of_drive(name.serial).nonces == {42, 43, 44}
    last.write_bytes(noted)
    assert "does not end with the row that" in bench.refused()


@pytest.mark.parametrize("line", [b"[]", b"1", b"null", b"{}", b"not JSON"])
def test_a_row_of_another_kind_is_one_sentence(bench: Bench, line: bytes) -> None:
    bench.began(bench.accepted(), "run-1", nonce=42)
    with bench.log.path.open("ab") as file:
        file.write(line + b"\n")
    assert "line 2, is not as wattload wrote it" in bench.refused()


def test_a_torn_row_is_cut_off_before_the_next_one(bench: Bench) -> None:
    guard = bench.accepted()
    bench.began(guard, "run-1", nonce=42)
    first = (bench.log.folder / LAST_NAME).read_bytes()
    bench.began(guard, "run-2", nonce=43)
    whole, last = bench.log.path.read_bytes(), bench.log.folder / LAST_NAME
    bench.log.path.write_bytes(whole[:-5])
    last.write_bytes(first)
    bench.began(guard, "run-3", nonce=44)
    assert guard.name is not None
    log = bench.log.of_drive(guard.name.serial)
    assert [row.run_id for row in log.begins] == ["run-1", "run-3"]
    assert log.nonces == {42, 44}
