"""The load's process, and the run's side of it: start it, ask it, notice its death, end it.

``python -m wattload.run.host_load.process`` ends with the run's pipe. It answers each JSON object
that it reads with one. The first line that it writes says that its threads are ready, or why they
can't be. It does not import NumPy for a program: that would start threads beside the one that forks
it, and take memory of the loaded host.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wattload
from wattload.core import interrupts
from wattload.core.errors import RunError
from wattload.core.host.counters import format_cpus, reap_apart
from wattload.core.interrupts import end_with
from wattload.core.processes import adopt_orphans, end_descendants, end_marked
from wattload.core.sysfs import parse_cpus

if TYPE_CHECKING:
    from wattload.loaders.engine.load import LoadCounts

COMMAND = (sys.executable, "-P", "-m", "wattload.run.host_load.process")

MARK = "WATTLOAD_LOAD"
"""The variable by which what a program starts is known, whatever its parent and session are."""

END_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 30.0
"""Longer than its threads take to touch their buffers."""
_WORDS_BYTES = 400


class LoadProcess:
    """A process that keeps the host busy until it is closed, or this process ends."""

    def __init__(
        self, cpus: Sequence[int], *, thread_bytes: int = 0, program: Sequence[str] = ()
    ) -> None:
        """Start it, and return when its threads are ready.

        Args:
            cpus: where its threads are pinned to.
            thread_bytes: of the buffers of each thread.
            program: a program to run instead of threads of ours.

        Raises:
            RunError: it can't be started.
        """
        self.started_s = time.monotonic()
        self.died_s: float | None = None
        self._ends = False
        self._lock = threading.Lock()
        self._mark = secrets.token_hex(8)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        command = [*COMMAND, "--parent", str(os.getpid()), "--cpus", format_cpus(set(cpus))]
        command += ["--program", *program] if program else ["--thread-bytes", str(thread_bytes)]
        root = str(Path(wattload.__file__).parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            with interrupts.held():
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._log,
                    start_new_session=True,
                    cwd="/",
                    env={
                        **os.environ,
                        "PYTHONPATH": os.pathsep.join(paths),
                        MARK: self._mark,
                    },
                )
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        except OSError as error:
            raise RunError(f"the load can't be started: {error}") from error
        try:
            self.words = self._greeting()
        except BaseException as error:
            with interrupts.ignored():
                death = self.death()
                self.close()
            if death is None or isinstance(error, RunError):
                raise
            raise death from error

    @property
    def pid(self) -> int:
        return self._process.pid

    def set(self, mode: str, *, copy_bytes: int = 0, units: int = 0) -> None:
        self._ask({"mode": mode, "copy_bytes": copy_bytes, "units": units})

    def counts(self) -> LoadCounts | None:
        """Return its counts now; ``None`` of a program, which has none."""
        from wattload.loaders.engine.load import LoadCounts

        answer = self._ask({})
        return LoadCounts(**answer) if answer else None

    def death(self) -> RunError | None:
        """Return the error to raise if it has died, else ``None``."""
        if self.died_s is None:
            return None
        words = self._last_words()
        return RunError(
            f"the load died at {self.died_s - self.started_s:.0f} s: run failed"
            + (f"; its last words: {words}" if words else "")
        )

    def close(self) -> None:
        """End it, if it has not ended."""
        if self._process.returncode is not None:
            return
        self._ends = True
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._watcher.join(END_TIMEOUT_S)
        self._kill()
        self._watcher.join()
        self._process.returncode = reap_apart(self._process.pid)
        self._log.close()

    def _watch(self) -> None:
        """Wait for its end, leaving it to be waited for; break the run off if it came too early."""
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self._kill()
        if not self._ends:
            self.died_s = time.monotonic()
            interrupts.break_off()

    def _kill(self) -> None:
        """Kill it and what a program has started; its id stays its own until it is waited for.

        A process in another session is known by its environment, if that is still the one given.
        """
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        end_marked(f"{MARK}={self._mark}")

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            try:
                stdin = self._process.stdin
                if stdin is not None:
                    stdin.write(json.dumps(request).encode() + b"\n")
                    stdin.flush()
            except OSError:
                self._raise_death()
            return self._answer()

    def _greeting(self) -> str:
        """Return how it works, once its threads are ready."""
        first = self._answer()
        if "error" in first:
            raise RunError(f"the load can't be started: {first['error']}")
        return str(first.get("ready"))

    def _answer(self) -> dict[str, Any]:
        """Return the next line; one line answers one request, so none is buffered."""
        stdout = self._process.stdout
        if stdout is None:
            self._raise_death()
        elif not select.select([stdout], [], [], ANSWER_TIMEOUT_S)[0]:
            self._ends = True  # what follows is not a death of its own
            self._kill()
            raise RunError(
                f"the load did not answer in {ANSWER_TIMEOUT_S:.0f} s: run failed; is it stopped?"
            )
        line = b"" if stdout is None else stdout.readline()
        if not line:
            self._raise_death()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _raise_death(self) -> None:
        self._watcher.join(END_TIMEOUT_S)
        death = self.death()
        raise death or RunError("the load closed its pipe: run failed")

    def _last_words(self) -> str:
        try:
            end = self._log.seek(0, os.SEEK_END)
            self._log.seek(max(0, end - _WORDS_BYTES))
            lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        except (OSError, ValueError):
            return ""
        return lines[-1].strip() if lines else ""


LOOK_S = 1.0
"""How often it looks whether the run lives: its forked children may hold the pipe open."""

_LINE_BYTES = 1 << 16


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the end of standard input; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m wattload.run.host_load.process")
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
    """A program that takes no orders, ended with this process, as is all that it has started."""

    def __init__(self, command: Sequence[str]) -> None:
        adopt_orphans()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
            # This process has one thread (NumPy, which starts more, is not imported for a program),
            # so that code after its fork is safe.
            preexec_fn=partial(end_with, os.getpid()),  # noqa: PLW1509
        )
        self.words = command[0]

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        return {}

    def poll(self) -> int | None:
        return self._process.poll()

    def close(self) -> None:
        end_descendants()


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
