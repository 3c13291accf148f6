"""Faults of the host become one sentence: what failed, and what to do."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from wattload.core.errors import ConfigError, RunError, host_fault
from wattload.core.files import choose_folder

LIMITED = """
import resource, sys
number = getattr(resource, sys.argv[1])
resource.setrlimit(number, (int(sys.argv[2]), int(sys.argv[2])))
from wattload.core.errors import host_fault
print(host_fault(MemoryError() if sys.argv[3] == "memory" else OSError(int(sys.argv[3]), "no")))
"""


def failed(code: int, path: Path | str = "/mnt/a") -> OSError:
    return OSError(code, "words of the kernel", str(path))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (failed(errno.ENOSPC), "/mnt/a: words of the kernel; free some space"),
        (failed(errno.EIO), "/mnt/a: words of the kernel; the drive or its file system failed"),
        (failed(errno.EROFS), "mount it read-write"),
        (
            failed(errno.ENOSPC, "/dev/gone"),
            "; the device has become smaller than it",
        ),
        (failed(errno.EIO, "/dev/gone"), "/dev/gone: words of the kernel; the drive failed"),
        (failed(errno.ENXIO, "/dev/gone"), "check that the drive is still there"),
        (failed(errno.ENOSPC, "/dev/shm/a"), "free some space"),
        (failed(errno.ESTALE), "check that its file system is still mounted"),
        (failed(errno.EDOM), "/mnt/a: words of the kernel; check the folder"),
        (OSError(errno.EIO, ""), "Input/output error; the drive"),
        (MemoryError(), "out of memory; close other programs"),
        (RuntimeError("can't start new thread"), "out of memory"),
        (ImportError("x.so: failed to map segment from shared object"), "out of memory"),
    ],
)
def test_a_fault_says_what_failed_and_what_to_do(error: Exception, sentence: str) -> None:
    fault = host_fault(error)
    assert isinstance(fault, RunError)
    assert sentence in str(fault)


@pytest.mark.parametrize(
    "error",
    [ValueError("ours"), ConfigError("explained"), BrokenPipeError(errno.EPIPE, "no reader"),
     RuntimeError("ours"), ImportError("no module"), OSError("without a number")],
)  # fmt: skip
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert host_fault(error) is None


@pytest.mark.parametrize(
    ("limit", "size", "error", "sentence"),
    [
        ("RLIMIT_NOFILE", 300, errno.EMFILE, "the limit is 300 open files; raise it with ulimit"),
        ("RLIMIT_FSIZE", 10**6, errno.EFBIG, "the limit is 1.00 MB per file"),
        ("RLIMIT_AS", 10**9, "memory", "out of memory; the limit is 1.00 GB of address space"),
    ],
)
def test_a_limit_that_was_met_is_named(limit: str, size: int, error: object, sentence: str) -> None:
    command = [sys.executable, "-c", LIMITED, limit, str(size), str(error)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert sentence in done.stdout


def test_a_path_through_a_descriptor_is_named_as_the_file_it_is(tmp_path: Path) -> None:
    with choose_folder(tmp_path) as folder:
        fault = host_fault(failed(errno.EIO, folder.path / "file"))
    assert str(tmp_path / "file") in str(fault)
