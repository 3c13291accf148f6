"""``python -m wattload.run.host_load``: the load's process, which ends with the run's pipe.

It answers each JSON object that it reads with one. The first line that it writes says that its
threads are ready, or why they can't be.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from wattload.core.host.topology import parse_cpus
from wattload.core.interrupts import end_with

LOOK_S = 1.0
"""How often it looks whether the run lives: its forked children may hold the pipe open."""

_LINE_BYTES = 1 << 16


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the end of standard input; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m wattload.run.host_load")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--cpus", required=True)
    parser.add_argument("--thread-bytes", type=int, default=0)
    parser.add_argument("--program", nargs=argparse.REMAINDER, default=[])
    given = parser.parse_args(argv)
    with suppress(OSError):  # under memory pressure it goes before the run does
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    load: Engine | Program
    try:
        if given.program:
            load = Program(given.program)
        else:
            load = Engine(sorted(parse_cpus(given.cpus)), given.thread_bytes)
    except Exception as error:  # the run explains it
        _write({"error": str(error) or type(error).__name__})
        return 1
    _write({"ready": load.words})
    try:
        return _serve(load, given.parent)
    finally:
        load.close()


class Engine:
    """The load of the engine's library."""

    def __init__(self, cpus: Sequence[int], thread_bytes: int) -> None:
        from wattload.loaders.engine.load import EngineLoad, Mode, copier

        self._modes = Mode
        self._load = EngineLoad(cpus, thread_bytes)
        self.words = copier()
        self.returncode: int | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Change what the threads do if the request says so, and return the counts."""
        if "mode" in request:
            mode = self._modes[request["mode"]]
            self._load.set(mode, request.get("copy_bytes", 0), request.get("units", 0))
        return asdict(self._load.read())

    def poll(self) -> int | None:
        """Return ``None``: threads do not end by themselves."""
        return None

    def close(self) -> None:
        self._load.close()


class Program:
    """A program that takes no orders, ended with this process."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            # This process has one thread, so that code after its fork is safe.
            preexec_fn=partial(end_with, os.getpid()),  # noqa: PLW1509
        )
        self.words = command[0]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def poll(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _serve(load: Engine | Program, parent: int) -> int:
    pending = b""
    while True:
        ready, _, _ = select.select([0], [], [], LOOK_S)
        if os.getppid() != parent:
            return 0
        ended = load.poll()
        if ended is not None:
            sys.stderr.write(f"the program ended by itself with status {ended}\n")
            return 1
        if not ready:
            continue
        received = os.read(0, _LINE_BYTES)
        if not received:
            return 0
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            _write(load.answer(json.loads(line)))


def _write(answer: dict[str, Any]) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
