"""What is on a drive, seen by the guard: signatures, sampled blocks, counts and the log."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Literal
from uuid import UUID

import numpy as np
import pytest

from tests.core.storage.drives import (
    HEALTHY,
    Bench,
    FakeNvme,
)
from tests.core.storage.loops import (
    LINUX_DATA,
    SIZE_BYTES,
    add_partition,
    loop_device,
    must,
    write_gpt,
)
from wattload.core.io import BlockIdentity
from wattload.core.storage.content import sample_offsets
from wattload.core.storage.efi import EFI_TYPE
from wattload.core.storage.raw_writes import LAST_NAME, RawWriteLog
from wattload.loaders.stamps import seal

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach loop devices")


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
        assert len(found.content.blank) >= 1024
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


def test_an_unseen_user_does_not_make_the_content_unknown(bench: Bench) -> None:
    bench.completed(nonce=42)
    guard = bench.accepted()
    assert guard.name is not None
    for findings, covered_bytes in ((("unseen",), SIZE_BYTES), (("unsampled",), 0)):
        guard.findings = findings
        bench.began(guard, f"run-{findings}", nonce=43, covered_bytes=0)
        assert bench.log.of_drive(guard.name.serial).covered_bytes == covered_bytes


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
