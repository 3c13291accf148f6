"""A run whose target or worker is lost midway ends with one sentence and a record."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, launched, record_of, until
from tests.run.test_interruption import processes_of
from tests.tinyfs import fail_all_access, tiny_file_system

pytestmark = pytest.mark.slow

ENDLESS = {
    "checkpoint": ("workload.checkpoint_count=100000", "workload.shrink_bytes=4000000"),
    "dlrm": ("workload.rounds=10000", "workload.row_count=2000", "workload.workers=2"),
    "dlrm loader=native": (
        "workload.rounds=10000",
        "workload.row_count=2000",
        "workload.columnar=false",
    ),
    "unet3d": ("workload.epochs=1000", "workload.record_divisor=1024", "accelerator=unpaced"),
}
TIMED = {
    "checkpoint": "write",
    "dlrm": "parquet_to_binary",
    "dlrm loader=native": "tsv_to_binary",
    "unet3d": "read",
}


def detach(target: Path) -> None:
    subprocess.run(["umount", "-l", str(target)], check=True)


def make_read_only(target: Path) -> None:
    """Report an error to the file system, which then protects itself."""
    subprocess.run(["mount", "-o", "remount,errors=remount-ro", str(target)], check=False)
    source = ["findmnt", "-no", "SOURCE", str(target)]
    device = Path(subprocess.run(source, capture_output=True, text=True, check=True).stdout.strip())
    trigger = Path("/sys/fs/ext4", device.name, "trigger_fs_error")
    if not trigger.exists():
        pytest.skip("only ext4 can be told to fail")
    trigger.write_text("1")


@contextmanager
def endless(folder: Path, workload: str, *overrides: str) -> Iterator[subprocess.Popen[str]]:
    """Start a run that does not end by itself, and wait for its first timed phase."""
    words = (
        *f"workload={workload}".split(),
        "scale=demo",
        "power=none",
        *ENDLESS[workload],
        *overrides,
    )
    with launched(folder, *words, "target.max_write_bytes=1000000000000") as process:
        until(lambda: has_begun(folder, TIMED[workload]), process)
        yield process


def has_begun(folder: Path, phase: str) -> bool:
    texts = [path.read_text() for path in (folder / "runs").glob("2*/journal-*.jsonl")]
    return any(
        f'"{phase}"' in line and '"begin"' in line for text in texts for line in text.splitlines()
    )


def the_sentence(folder: Path, process: subprocess.Popen[str]) -> str:
    """Return what a failed run printed, which its record must say too."""
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode in (1, 2), errors
    assert "Traceback" not in errors
    (line,) = (line for line in errors.splitlines() if line.startswith("wattload: "))
    record = record_of(folder)
    assert (record.status, f"wattload: {record.status_reason}") == ("failed", line)
    until(lambda: not processes_of(folder))
    return line


@pytest.mark.parametrize(
    ("workload", "lose", "said"),
    [
        ("checkpoint", fail_all_access, "Input/output error"),
        ("dlrm loader=native", fail_all_access, "Input/output error"),
        ("unet3d", fail_all_access, "Input/output error"),
        ("dlrm", detach, "No such file or directory"),
        ("checkpoint", make_read_only, "Read-only file system"),
    ],
)
def test_a_lost_target_is_named_with_the_reason(
    tmp_path: Path, workload: str, lose: Callable[[Path], None], said: str
) -> None:
    with tiny_file_system(tmp_path) as target:
        try:
            with endless(tmp_path, workload, f"target.path={target}") as process:
                lose(target)
                line = the_sentence(tmp_path, process)
        finally:
            if not target.is_mount():  # for the file system's own end
                subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(target)], check=True)
    assert f"{target}/wattload-data" in line
    assert said in line or "Input/output error" in line  # the journal may abort first


@pytest.mark.parametrize(
    ("workload", "overrides", "name"),
    [("dlrm", (), "spawn_main"), ("unet3d", ("loader=torch",), "pt_data_worker")],
)
def test_a_killed_worker_is_named_with_what_to_do(
    tmp_path: Path, workload: str, overrides: tuple[str, ...], name: str
) -> None:
    with endless(tmp_path, workload, *overrides) as process:
        found = [pid for pid in processes_of(tmp_path) if name in names_of(pid)]
        os.kill(found[-1], signal.SIGKILL)
        line = the_sentence(tmp_path, process)
    assert str(found[-1]) in line
    assert "if the host ran out of memory, set a lower" in line


def names_of(pid: int) -> str:
    folder = Path(f"/proc/{pid}")
    try:
        return (folder / "comm").read_text() + (folder / "cmdline").read_text()
    except OSError:  # it has ended
        return ""
