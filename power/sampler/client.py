"""The run's side of the sampler: start it, open it for a run, use its answers.

After ``open`` the sampler undoes everything, however this process ends. If this process is killed,
the sampler records the run as aborted.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Self

import wattload
from wattload.core import interrupts
from wattload.core.errors import DataError, PowerError, PowerPermissionError
from wattload.core.files import open_folder
from wattload.power.config import SOCKET_VARIABLE
from wattload.power.control.journal import default_state_folder
from wattload.power.sampler.protocol import (
    ANSWER_TIMEOUT_S,
    BEGIN,
    AbortReply,
    FinishReply,
    Message,
    MessageStream,
    OpenReply,
    error_in,
    reply_in,
)

if TYPE_CHECKING:
    from wattload.core.record.energy import PowerStateRecord
    from wattload.power.config import PowerConfig

PROGRAM = (sys.executable, "-P", "-m", "wattload.power.sampler")
LOG_NAME = "sampler.log"

_END_TIMEOUT_S = 10.0


class SamplerClient:
    """A sampler of this process, for one run at a time: open, start, then finish or abort."""

    def __init__(
        self, stream: socket.socket, process: subprocess.Popen[bytes], log: Path | None
    ) -> None:
        stream.settimeout(ANSWER_TIMEOUT_S)
        self._socket = stream
        self._stream = MessageStream(stream)
        self._process = process
        self._log = log
        self._lock = threading.Lock()
        self._unanswered = 0
        self.has_run = False
        """Whether a run was opened and is not over: only then is there anything to abort."""

    @classmethod
    def spawn(
        cls,
        runs: Path,
        log_path: Path | None = None,
        *,
        service: Path | None = None,
        program: Sequence[str] = PROGRAM,
        waits: bool = False,
    ) -> Self:
        """Start a sampler for this process, connected to it.

        It is exec'ed into its own session and inherits only its end of the connection, so killing
        the run's process group does not reach it. If it ends at its start, the first command fails.
        With ``service``, a sampler service reads and sets the drives, and the sampler only writes.
        ``log_path`` receives its log; the default is ``sampler.log`` in the state folder. Without a
        folder to write to, there is no log. If it ``waits``, it changes nothing before ``begin``,
        and ends without a trace if that never comes.

        Raises:
            PowerError: it can't be started, or nothing listens on ``service``.
            PowerPermissionError: this user may not use the service.
        """
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as opened:
            opened.enter_context(theirs)
            command = [*program, "--runs", str(runs.absolute())]
            descriptors = []
            try:
                if service is not None:
                    connection = opened.enter_context(_connected(service))
                    descriptors.append(connection.fileno())
                    command += ["--service", str(connection.fileno())]
                with interrupts.held():
                    process = _start(command, theirs, descriptors)
            except BaseException:
                ours.close()
                raise
        client = cls(ours, process, log_path or default_state_folder() / LOG_NAME)
        if not waits:
            client.begin()
        return client

    def begin(self) -> None:
        """Let a sampler that waits serve runs, write its log, and record runs that were killed."""
        self._log, log = _open_log(self._log)
        try:
            with contextlib.suppress(OSError):  # it has ended: the first command raises
                socket.send_fds(self._socket, [BEGIN], [log])
        finally:
            os.close(log)

    @property
    def pid(self) -> int:
        """The process id of the sampler."""
        return self._process.pid

    def open(
        self,
        run_id: str,
        config: PowerConfig,
        *,
        devices: Sequence[str],
        block_devices: Sequence[str],
    ) -> OpenReply:
        """Set the power state and open the sources.

        Args:
            run_id: the name of the run's folder; if it has ``draft.json``, the sampler can write
                the record of a run that was killed.
            config: the requested power configuration.
            devices: controllers under the targets by their kernel names (``nvme0``), and other
                leaves of their block stacks (``vda``), which a data sheet may describe.
            block_devices: devices whose bytes are counted over time (``nvme0n1``, ``vda``).

        Raises:
            PowerError: the request can't be met, and nothing is set. The sampler's error class is
                kept.
        """
        request = asdict(config)
        del request["sampler_socket"]  # used on this side only
        self.has_run = True
        answer = self._request(
            "open",
            version=wattload.__version__,
            run_id=run_id,
            request=request,
            devices=list(devices),
            block_devices=list(block_devices),
        )
        return reply_in(answer, OpenReply)

    def start(self) -> None:
        self._request("start")

    def quiet(self, *, is_on: bool) -> None:
        """Pause or resume reading the drives; other meters go on."""
        self._request("quiet", is_on=is_on)

    def finish(self) -> FinishReply:
        """Stop sampling; the power state is restored when this returns."""
        answer = self._request("finish")
        self.has_run = False
        return reply_in(answer, FinishReply)

    def abort(self) -> tuple[PowerStateRecord, ...]:
        """Undo everything; return the power states of the drives. The run writes its record."""
        answer = self._request("abort")
        self.has_run = False
        return reply_in(answer, AbortReply).states

    def close(self) -> None:
        """End the connection and wait a while for the sampler to end; safe to call twice."""
        self._stream.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # It is still restoring a slow drive or writing a record, and ends by itself.
            threading.Thread(target=self._process.wait, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _request(self, command: str, **fields: object) -> Message:
        with self._lock:
            try:
                self._unanswered += 1
                # A sampler that ended has perhaps said why.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._stream.send({"command": command, **fields})
                answer = self._answer()
            except TimeoutError as error:
                raise PowerError(
                    f"the sampler did not answer {command} within {ANSWER_TIMEOUT_S:g} s"
                    f"{self._log_hint()}"
                ) from error
            except (OSError, EOFError) as error:
                raise PowerError(self._ended_message(command)) from error
        if not answer.get("ok"):
            raise error_in(answer)
        return answer

    def _answer(self) -> Message:
        """Wait for the answer to the last command, behind those to commands that were interrupted.

        Raises as ``MessageStream.read``.
        """
        while True:
            for answer in self._stream.read():
                self._unanswered -= 1
                if not self._unanswered:
                    return answer

    def _ended_message(self, command: str) -> str:
        status = ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = f" with status {self._process.wait(1)}"
        return (
            f"the sampler ended{status} before it answered {command}{self._log_hint()}; "
            "`wattload power restore` or the next run restores a power state that it had "
            "set"
        )

    def _log_hint(self) -> str:
        return f" (its log: {self._log})" if self._log else ""


def _connected(service: Path) -> socket.socket:
    """Connect to a sampler service."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.connect(str(service))
    except OSError as error:
        stream.close()
        if error.errno in (errno.EACCES, errno.EPERM):
            raise PowerPermissionError(
                f"user {os.geteuid()} may not use the sampler service on {service}: join the "
                "socket's group (`ls -l` shows it) and log in again"
            ) from error
        raise PowerError(
            f"no sampler answers on {service} ({error.strerror or error}); start its "
            f"service (`wattload sampler`), or unset power.sampler_socket and "
            f"{SOCKET_VARIABLE} to let the run start its own"
        ) from error
    return stream


def _open_log(path: Path | None) -> tuple[Path | None, int]:
    """Open the log; without a place for one, return no path and a descriptor of the null device."""
    with contextlib.suppress(OSError, DataError):
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open_folder(path.parent) as folder:
                return path, folder.append(path.name)
    return None, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _start(
    command: Sequence[str], client: socket.socket, descriptors: Sequence[int]
) -> subprocess.Popen[bytes]:
    """Exec the sampler into its own session, with this wattload on its path.

    Until it begins, its errors are the run's.
    """
    root = str(Path(wattload.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        return subprocess.Popen(
            command,
            stdin=client.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if sys.__stderr__ is None else None,  # it is closed
            start_new_session=True,
            pass_fds=descriptors,
            cwd="/",
            env=environment,
        )
    except OSError as error:
        raise PowerError(f"the sampler can't be started: {error}") from error
