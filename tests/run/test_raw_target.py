"""Runs that overwrite whole drives: loop devices on files of the test."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.core.storage.loops import SIZE_BYTES, command, digest, loop_device, must
from tests.core.storage.mounting import mounted
from tests.run.running import call_here, launched, record_of, run, run_folders, run_here, until
from wattload.cli.main import dispatch
from wattload.core.errors import TargetError
from wattload.core.storage.content import sample_offsets
from wattload.core.storage.guard import Guard, Permission
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.storage.targets import Target, TargetKind, resolve_targets
from wattload.run.raw_drive import ClaimedDrive, is_sealed, read_nvme

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach loop devices")

WRITER = ("workload=null", "workload._target_=tests.run.raw_writer.RawWriter", "power=none")


EVERYTHING = "target.overwrite=[unknown,unsampled,unseen]"


@dataclass
class Drive:
    """A loop device, and the folder in which runs on it are made."""

    device: Path
    image: Path
    folder: Path

    def words(self, *more: str) -> tuple[str, ...]:
        own = ("target=block", f"target.path={self.device}", f"target.serial={self.image}")
        return (*WRITER, *own, *more)

    def run(self, *more: str, **variables: str) -> None:
        done = run_here(self.folder, *self.words(*more), **variables)
        assert done.returncode == 0, done.stderr

    def refused(self, *more: str, **variables: str) -> str:
        """Return the error of a refused run; not a byte of the drive has changed."""
        before, count = digest(self.device), len(self.rows())
        done = run_here(self.folder, *self.words(*more), **variables)
        assert done.returncode == 2, (done.stdout, done.stderr)
        assert digest(self.device) == before
        assert len(self.rows()) == count
        return done.stderr

    def plan(self, *words: str) -> str:
        given = ("null", *WRITER[1:], "target=block", f"target.path={self.device}", *words)
        done = call_here(self.folder, "plan", *given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rows(self) -> list[dict[str, Any]]:
        log = self.folder / "state/raw-writes.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def fill(self, content: bytes) -> None:
        with self.device.open("r+b") as device:
            device.write(content * (SIZE_BYTES // len(content)))
            device.flush()
            os.fsync(device.fileno())


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Drive]:
    image = tmp_path / "drive.img"
    with loop_device(image) as device:
        yield Drive(device, image, tmp_path)


def test_a_run_is_logged_before_and_after_its_bytes(drive: Drive) -> None:
    drive.run()
    begin, end = drive.rows()
    assert (begin["event"], end["event"]) == ("begin", "end")
    assert begin["planned_bytes"] == SIZE_BYTES
    assert begin["command"][:2] == ["wattload", "run"]
    assert begin["serial"].startswith("loop:")
    assert end["written_bytes"] == SIZE_BYTES
    assert end["status"] == "complete"
    record = record_of(drive.folder)
    assert record.run_id == begin["run_id"] == end["run_id"]
    (target,) = record.targets
    assert target.facts.kind == "block"
    assert target.history.preconditioning_bytes == 2 * SIZE_BYTES
    assert "2.00 passes" in target.history.preconditioning
    assert target.history.session_written_bytes == SIZE_BYTES
    names = [span.name for span in record.spans]
    assert "write" in names


def newest(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        (run_folders(folder / "runs")[-1] / "record.json").read_text()
    )
    return record


def test_a_workload_discards_what_was_on_the_drive(drive: Drive) -> None:
    drive.run()
    content = guard_of(drive).inspect().content
    assert content is not None
    assert content.counts_text.endswith(" stamped by wattload")
    assert content.own_count >= 1024
    drive.run(WATTLOAD_TEST_PURGE="discard", WATTLOAD_TEST_SHARE="0.5")
    record = newest(drive.folder)
    purge = record["workload"]["facts"]["purge"]
    assert purge["sent"] == f"BLKDISCARD of {SIZE_BYTES} bytes"
    assert purge["reads_as"].endswith(" blank")
    assert record["targets"][0]["history"]["last_trim"] != "unknown"


def test_later_runs_know_the_stamps_of_earlier_ones(drive: Drive) -> None:
    drive.fill(b"precious")
    assert "neither blank nor ours" in drive.refused()
    # A run that fails before its first byte does not use up the permission.
    drive.refused("target.overwrite=[unknown]", WATTLOAD_TEST_SHARE="1.5")
    drive.run("target.overwrite=[unknown]")
    drive.run()
    drive.fill(b"precious")
    assert "neither blank nor ours" in drive.refused()


def test_data_between_the_samples_of_a_filled_drive_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, size_bytes=96 << 20) as device:
        drive = Drive(device, image, tmp_path)
        drive.run()
        sampled = sample_offsets(96 << 20, drive.rows()[0]["serial"])
        at = next(first for first, last in pairwise(sampled) if last - first > (132 << 10)) + 4096
        with device.open("r+b") as opened:
            opened.seek(at)
            opened.write(b"precious" * 16384)
        last = drive.rows()[-1]["run_id"]
        assert (
            f"{device} holds possibly other data (since {last}, 131,072 bytes were written by "
            "the kernel's count); to overwrite it, set target.overwrite=[unknown]"
        ) in drive.refused()
        shown = drive.plan(f"target.serial={image}")
        assert "131,072 bytes were written" in shown
        drive.run("target.overwrite=[unknown]")
        shown = drive.plan(f"target.serial={image}")
        assert "stamped by wattload; nothing was written since the last run" in shown


def test_a_write_after_the_drive_was_examined_refuses(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(drive.folder / "state"))
    claimed = claimed_drive(drive)
    try:
        with drive.device.open("r+b") as device:
            device.write(b"precious")
        with pytest.raises(TargetError, match=r"another program wrote to /dev/loop\d+ after this"):
            claimed.begin("run-1", ["wattload", "run"], SIZE_BYTES, SIZE_BYTES)
    finally:
        claimed.close()
    assert not drive.rows()


def guard_of(drive: Drive) -> Guard:
    permission = Permission(serials=(str(drive.image),), overwrite=frozenset(), shared=False)
    log = RawWriteLog(drive.folder / "state")
    return Guard(target_of(drive), permission, log, read_nvme=read_nvme, is_sealed=is_sealed)


def target_of(drive: Drive) -> Target:
    (target,) = resolve_targets([drive.device], host="here", kind=TargetKind.BLOCK)
    return target


def claimed_drive(drive: Drive) -> ClaimedDrive:
    guard = guard_of(drive)
    return ClaimedDrive(target_of(drive), guard, guard.claim())


def test_a_sweep_over_two_drives_takes_a_list_of_serials(drive: Drive) -> None:
    image = drive.folder / "other.img"
    with loop_device(image) as other:
        done = run_here(
            drive.folder,
            "-m",
            *WRITER,
            "target=block",
            f"target.path={drive.device},{other}",
            f"target.serial=[{drive.image},{image}]",
        )
        assert done.returncode == 0, done.stderr
        assert len(run_folders(drive.folder / "runs")) == 2
        assert len({row["serial"] for row in drive.rows()}) == 2
        assert "is not the drive of that serial" in drive.refused(f"target.serial=[{image}]")


def test_more_than_a_drive_write_has_to_be_permitted(drive: Drive) -> None:
    found = drive.refused(WATTLOAD_TEST_SHARE="1.5")
    assert "writes 25.17 MB, 1.5 drive writes; target.max_write_bytes=25165824" in found


def test_a_workload_of_files_is_refused_before_anything_is_opened(drive: Drive) -> None:
    done = run_here(drive.folder, "workload=unet3d", "target=block", f"target.path={drive.device}")
    assert done.returncode == 2
    assert "workload=unet3d reads files; use target=directory" in done.stderr


def test_a_killed_run_is_ended_in_the_log_by_its_sampler(drive: Drive) -> None:
    drive.fill(b"precious")
    words = drive.words("target.overwrite=[unknown]")
    with launched(
        drive.folder, *words, WATTLOAD_TEST_STOP="run", WATTLOAD_TEST_SHARE="0.5"
    ) as process:
        until((drive.folder / "waiting").exists, process)
        assert [row["event"] for row in drive.rows()] == ["begin"]
        assert command("mkfs.ext4", "-q", str(drive.device)).returncode
        # Within this process, a run that this process started would be of its own family.
        done = run(drive.folder, *drive.words(EVERYTHING))
        assert done.returncode == 2
        assert f"process {process.pid} (" in done.stderr
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: len(drive.rows()) == 2)
    _, end = drive.rows()
    assert (end["event"], end["status"]) == ("end", "aborted")
    assert end["written_bytes"] == SIZE_BYTES // 2
    assert "neither blank nor ours" in drive.refused()
    drive.run("target.overwrite=[unknown]")


def test_a_mounted_file_system_within_the_drive_is_never_overwritten(drive: Drive) -> None:
    with loop_device(drive.device, "--offset", "1048576") as upper:
        must("mkfs.ext4", "-q", str(upper))
        with mounted(drive.folder / "mounted", str(upper)) as at:
            (at / "file").write_text("precious")
        with mounted(drive.folder / "mounted", "-o", "ro", str(upper)) as at:
            found = drive.refused(EVERYTHING)
            assert f"is mounted at {at}; unmount it" in found


def test_a_user_that_comes_after_the_claim_keeps_the_run_from_beginning(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(drive.folder / "state"))
    claimed = claimed_drive(drive)
    try:
        used = pytest.raises(TargetError, match=r"is in use: loop\d+, a loop device over loop\d+")
        with loop_device(drive.device, "--offset", "4096"), used:
            claimed.begin("run-1", ("wattload", "run"), SIZE_BYTES, SIZE_BYTES)
        assert drive.rows() == []
        claimed.begin("run-1", ("wattload", "run"), SIZE_BYTES, SIZE_BYTES)
        assert [row["run_id"] for row in drive.rows()] == ["run-1"]
    finally:
        claimed.close()


def test_a_log_that_can_not_be_written_refuses(drive: Drive) -> None:
    (drive.folder / "state").write_text("not a folder")
    before = digest(drive.device)
    done = run_here(drive.folder, *drive.words())
    assert done.returncode == 2
    assert digest(drive.device) == before


def test_a_permission_does_not_outlive_the_run_that_it_was_given_to(drive: Drive) -> None:
    must("mkfs.ext4", "-q", "-U", "11111111-2222-3333-4444-555555555555", str(drive.device))
    named = "target.overwrite=[ext4:11111111-2222-3333-4444-555555555555]"
    with launched(drive.folder, *drive.words(named), WATTLOAD_TEST_STOP="prepare") as process:
        until((drive.folder / "waiting").exists, process)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: len(drive.rows()) == 2)
    assert "holds ext4; to overwrite it, set target.overwrite=[" in drive.refused()
    drive.run(named)


def test_a_kill_during_a_purge_leaves_no_note_that_the_drive_is_prepared(
    drive: Drive, monkeypatch: pytest.MonkeyPatch
) -> None:
    drive.run()
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(drive.folder / "state"))
    claimed = claimed_drive(drive)
    assert claimed.conditioning() is not None

    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fcntl, "ioctl", kill)
    with pytest.raises(KeyboardInterrupt):
        claimed.purge("discard")
    monkeypatch.undo()
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(drive.folder / "state"))
    claimed.close()
    assert claimed.conditioning() is None


def test_a_plan_examines_a_drive_once(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATTLOAD_STATE_DIR", str(drive.folder / "state"))
    counted = []
    examine = Guard.inspect

    def count(guard: Guard) -> Guard:
        counted.append(guard)
        return examine(guard)

    monkeypatch.setattr(Guard, "inspect", count)
    words = ["null", *WRITER[1:], "target=block", f"target.path={drive.device}"]
    assert dispatch(["plan", *words]) == 0
    assert len(counted) == 1


def test_a_plan_ends_with_the_command_that_may_overwrite(drive: Drive) -> None:
    must("mkfs.ext4", "-q", "-U", "11111111-2222-3333-4444-555555555555", str(drive.device))
    before = digest(drive.device)
    shown = drive.plan()
    assert digest(drive.device) == before
    assert "holds ext4; to overwrite it, set target.overwrite=[" in shown
    last = shown.splitlines()[-1]
    assert "target.serial=SERIAL" in last
    assert "'target.overwrite=[ext4:11111111-2222-3333-4444-555555555555]'" in last
    assert str(drive.image) not in shown
    drive.run("target.overwrite=[ext4:11111111-2222-3333-4444-555555555555]")
    assert "; 1 earlier run on this host wrote " in drive.plan(f"target.serial={drive.image}")


def test_a_refused_run_names_all_reasons_at_once(drive: Drive) -> None:
    must("mkfs.ext4", "-q", "-U", "11111111-2222-3333-4444-555555555555", str(drive.device))
    before = digest(drive.device)
    words = (*WRITER, "target=block", f"target.path={drive.device}")
    done = run_here(drive.folder, *words)
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first.startswith(f"wattload: {drive.device} is a loop device of ")
    assert first.endswith("the path of its backing file (losetup --list shows it)")
    assert second == (
        f"  also        {drive.device} holds ext4; to overwrite it, set "
        "target.overwrite=[ext4:11111111-2222-3333-4444-555555555555]"
    )
    assert digest(drive.device) == before


def test_a_raw_drive_has_no_data_to_generate_or_to_clean(drive: Drive) -> None:
    generated = call_here(drive.folder, "datagen", *drive.words())
    assert generated.returncode == 2
    assert "datagen writes data files" in generated.stderr
    cleaned = call_here(drive.folder, "clean", str(drive.device))
    assert cleaned.returncode == 2
    assert "is a block device" in cleaned.stderr
