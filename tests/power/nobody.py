"""The unprivileged user ``nobody``, for tests that root runs."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.power.sampler_bench import ROOT, Bench

NOBODY = 65534

BECOME = (
    "import os, sys; own = int(sys.argv[1]); os.setgroups([]); os.setresgid(own, own, own); "
    "os.setresuid(own, own, own); os.umask(0o077); os.execv(sys.argv[2], sys.argv[2:])"
)

OPEN_VIEW = """
set -e
stage=$1 closed=$2 path=$3; shift 3
mount --bind "$path" "$stage"
mount -t tmpfs -o mode=755 none "$closed"
mkdir -p "$path"
mount --move "$stage" "$path"
exec "$@"
"""
"""Makes one folder below a closed one visible to this process, in its own mount namespace."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def as_nobody(
    program: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    uid: int = NOBODY,
) -> subprocess.Popen[str]:
    """Start Python on a program text as a user and group, in no other group and without HOME."""
    # -I -S: root's interpreter imports nothing before it has become nobody.
    become = [sys.executable, "-I", "-S", "-c", BECOME, str(uid)]
    return subprocess.Popen(
        [*_opened(), *become, sys.executable, "-P", "-c", program, *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **(environment or {})},
    )


@cache
def _opened() -> Sequence[str]:
    """Return the command that opens root's Python to nobody; empty if it is readable anyway."""
    python = Path(sys.base_prefix).resolve()
    closed = [each for each in reversed(python.parents) if not each.stat().st_mode & 0o001]
    if not closed:
        return ()
    stage = tempfile.mkdtemp(prefix="wattload-stage-")
    atexit.register(Path(stage).rmdir)
    view = ["sh", "-c", OPEN_VIEW, "view", stage, str(closed[0]), str(python)]
    return ("unshare", "--mount", "--propagation", "private", *view)


@cache
def nobody_reads_wattload() -> bool:
    """Return whether nobody may read this checkout and its libraries."""
    process = as_nobody("import tests.records, wattload.run.lifecycle")
    process.communicate()
    return process.returncode == 0


def need_nobody() -> None:
    """Skip if this test can't act as nobody with this code."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not nobody_reads_wattload():
        pytest.skip(f"nobody may not read {ROOT} or the libraries of this Python")


@contextmanager
def folder_for_all() -> Iterator[Path]:
    """Yield a folder that other users may enter; pytest's own folders are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="wattload-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def give(path: Path, *others: Path) -> None:
    """Make files belong to nobody."""
    for each in (path, *others):
        os.chown(each, NOBODY, NOBODY, follow_symlinks=False)


def run_of_nobody(bench: Bench, run_id: str) -> Path:
    """Add a run folder with a draft that belongs to nobody."""
    folder = bench.add_run(run_id)
    give(folder, *folder.iterdir())
    return folder
