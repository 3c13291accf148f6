"""Start a sampler beside this process, and connect to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import wattload
from wattload.core.errors import PowerError

PROGRAM = (sys.executable, "-P", "-m", "wattload.power.sampler")

_START_TIMEOUT_S = 60.0
"""Ten times what a busy host takes; one that ended is noticed at once."""
_RETRY_S = 0.005


def launch(
    program: Sequence[str], runs: Path, log_path: Path
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start ``program`` with a private socket and return a connection to it and its process.

    Raises:
        PowerError: it did not start; the message names the log.
    """
    folder = Path(tempfile.mkdtemp(prefix="wattload-"))
    path = folder / "s"
    try:
        process = _start([*program, "--socket", str(path), "--runs", str(runs)], log_path)
        return _connected(path, process, log_path), process
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: Sequence[str], log_path: Path) -> subprocess.Popen[bytes]:
    """Exec the sampler into a session of its own; it finds this wattload wherever that lies."""
    root = str(Path(wattload.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        with log_path.open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
                cwd="/",
                env=environment,
            )
    except OSError as error:
        raise PowerError(f"the sampler can't be started: {error}") from error


def _connected(path: Path, process: subprocess.Popen[bytes], log_path: Path) -> socket.socket:
    """Return a connection to the sampler as soon as it listens."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.connect(str(path))
        except OSError:
            stream.close()
        else:
            return stream
        if process.poll() is not None:
            raise PowerError(
                f"the sampler ended with status {process.returncode} as it started; "
                f"its log: {log_path}"
            )
        time.sleep(_RETRY_S)
    process.kill()
    process.wait()
    raise PowerError(
        f"the sampler did not listen within {_START_TIMEOUT_S:g} s; its log: {log_path}"
    )
