"""The run's side of the sampler: start it or connect to it, announce the run, use its answers.

After ``hello`` the sampler undoes everything, however this process ends. If the connection closes
without ``finish``, it records the run as aborted.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

import wattload
from wattload import __version__
from wattload.core import interrupts
from wattload.core.base_models import first_fault
from wattload.core.errors import DataError, PowerError
from wattload.core.files import open_folder
from wattload.power.control.journal import default_state_folder
from wattload.power.sampler.protocol import PROTOCOL_VERSION, encode, error_in
from wattload.power.sampler.replies import FinishReply, OpenReply, StatusReply

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig
    from wattload.power.control.recovery import Recovery

PROGRAM = (sys.executable, "-P", "-m", "wattload.power.sampler")
SOCKET_VARIABLE = "WATTLOAD_SAMPLER_SOCKET"

_ANSWER_TIMEOUT_S = 180.0
"""Longer than the slowest power state change."""

_BEAT_S = 10.0
"""How often a run shows a service that it lives; see ``LIFE_LIMIT_S`` of the sampler."""

_END_TIMEOUT_S = 10.0
_RECEIVE_BYTES = 64 * 1024

_MAX_ANSWER_BYTES = 64 << 20
"""No valid answer is longer; this ends a stream without an end."""

Report = TypeVar("Report", bound=BaseModel)


LOG_NAME = "sampler.log"


class SamplerClient:
    """A connection to a sampler. One run at a time: hello, open, start, then finish or abort."""

    def __init__(
        self, stream: socket.socket, process: subprocess.Popen[bytes] | None, log: Path | None
    ) -> None:
        self._stream = stream
        self._process = process
        self._log = log
        self._buffer = bytearray()
        self._version = __version__
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._loss: PowerError | None = None
        self.has_run = False
        """Whether a run is announced and not over: only then is there anything to abort."""
        _clients.add(self)

    @classmethod
    def spawn(
        cls,
        runs_dir: Path,
        log_path: Path | None = None,
        *,
        program: Sequence[str] = PROGRAM,
    ) -> SamplerClient:
        """Start a sampler for this process, connected to it.

        It is exec'ed into its own session and inherits only its end of the connection, so killing
        the run's process group does not reach it. If it ends at its start, the first command fails.
        ``log_path`` receives its log; the default is ``sampler.log`` in
        the state folder, which is this user's: a runs folder may be shared, and its other users
        could put a link or a pipe there. Without a folder to write to, there is no log.

        Raises:
            PowerError: it can't be started.
        """
        log = _open_log(log_path or default_state_folder() / LOG_NAME)
        stream, process = launch(program, runs_dir.absolute(), log)
        return cls(stream, process, log.path)

    @classmethod
    def connect(cls, socket_path: Path) -> SamplerClient:
        """Connect to a sampler service.

        Raises:
            PowerError: nothing listens there, this user may not use it, or it belongs to another
                user who is not root.
        """
        from wattload.power.sampler.access import peer_of

        stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            stream.connect(str(socket_path))
        except OSError as error:
            stream.close()
            raise PowerError(
                f"no sampler answers on {socket_path} ({error.strerror or error}); start its "
                f"service (`wattload sampler`), or unset power.sampler_socket and "
                f"{SOCKET_VARIABLE} to let the run start its own"
            ) from error
        server = peer_of(stream)
        if server.uid not in (0, os.geteuid()):
            stream.close()
            raise PowerError(
                f"untrusted socket owner: {socket_path} is served by user {server.uid}, who "
                f"is neither root nor you ({os.geteuid()}); set power.sampler_socket to "
                "root's socket"
            )
        return cls(stream, None, None)

    @property
    def pid(self) -> int | None:
        """The process id of a sampler started here, ``None`` for a service."""
        return self._process.pid if self._process else None

    def hello(self, run_id: str) -> None:
        """Announce a run; its folder with ``draft.json`` must exist."""
        answer = self._request("hello", protocol=PROTOCOL_VERSION, run_id=run_id)
        self._version = str(answer.get("version"))
        self.has_run = True

    def open(
        self, config: PowerConfig, *, devices: Sequence[str], block_devices: Sequence[str]
    ) -> OpenReply:
        """Set the power state and open the sources.

        Args:
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
        answer = self._request(
            "open", request=request, devices=list(devices), block_devices=list(block_devices)
        )
        if self._process is None:
            self._is_over = threading.Event()
            beat = threading.Thread(target=self._beat, args=(self._is_over,), daemon=True)
            beat.start()
        return self._report(OpenReply, answer)

    def start(self) -> None:
        self._request("start")

    def quiet(self, *, is_on: bool) -> None:
        """Pause or resume reading the drives; other meters go on."""
        self._request("quiet", on=is_on)

    def status(self) -> StatusReply:
        return self._report(StatusReply, self._request("status"))

    def finish(self) -> FinishReply:
        """Stop sampling; the power state is restored when this returns."""
        self._is_over.set()
        answer = self._request("finish")
        self.has_run = False
        return self._report(FinishReply, answer)

    def abort(self, status: str, reason: str) -> None:
        """Undo everything and have the sampler write the run's record if it has none.

        ``status`` is ``failed`` or ``aborted``.
        """
        self._is_over.set()
        self._request("abort", status=status, reason=reason)
        self.has_run = False

    @staticmethod
    def recover(run_id: str) -> list[Recovery]:
        """Undo what a killed sampler left in the journal; return the results for this run.

        Needs the same permission as setting a power state. A service does this itself at its next
        run.
        """
        from wattload.power.control.recovery import recover_changes

        return [recovery for recovery in recover_changes() if recovery.run_id == run_id]

    def close(self) -> None:
        """Close the connection and wait for a sampler started here; safe to call twice."""
        _clients.discard(self)
        self._is_over.set()
        self._stream.close()
        if self._process is None:
            return
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # It is still restoring a slow drive, and ends without this process.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close_in_child(self) -> None:
        """Drop a forked child's copy of the connection, which would hide this process's death."""
        with contextlib.suppress(OSError):
            os.close(self._stream.detach())

    def _beat(self, is_over: threading.Event) -> None:
        """Show now and then that this process lives: a service ends a run that stays silent."""
        while not is_over.wait(_BEAT_S):
            with self._lock:
                if is_over.is_set():  # set while this thread waited for the lock
                    return
                try:
                    self._exchange("status")
                except PowerError as error:
                    self._loss = error
                    return

    def _request(self, command: str, **fields: object) -> Mapping[str, Any]:
        with self._lock:
            if self._loss is not None:
                raise self._loss
            return self._exchange(command, **fields)

    def _exchange(self, command: str, **fields: object) -> Mapping[str, Any]:
        try:
            self._stream.settimeout(_ANSWER_TIMEOUT_S)
            # A sampler that refuses this client says so and hangs up before it is asked.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._stream.sendall(encode({"command": command, **fields}))
            answer = self._receive()
        except TimeoutError as error:
            raise PowerError(
                f"the sampler did not answer {command} within {_ANSWER_TIMEOUT_S:g} s"
                f"{self._log_hint()}"
            ) from error
        except (OSError, EOFError) as error:
            raise PowerError(self._ended_message(command)) from error
        if not answer.get("ok"):
            raise error_in(answer)
        return answer

    def _receive(self) -> Mapping[str, Any]:
        while b"\n" not in self._buffer[-_RECEIVE_BYTES:]:
            data = self._stream.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
            if len(self._buffer) > _MAX_ANSWER_BYTES:
                raise PowerError(f"the sampler's answer is longer than {_MAX_ANSWER_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _decoded(bytes(line))

    def _report(self, model: type[Report], answer: Mapping[str, Any]) -> Report:
        try:
            return model.model_validate(answer.get("report"))
        except ValidationError as error:
            place, *_ = first_fault(error)
            raise PowerError(
                f"the sampler (wattload {self._version}) sent a reply that this wattload "
                f"({__version__}) can't read ({place or 'report'}): start both from the same "
                "wattload"
            ) from error

    def _ended_message(self, command: str) -> str:
        status = ""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = f" with status {self._process.wait(1)}"
        return (
            f"the sampler ended{status} before it answered {command}{self._log_hint()}; "
            "`wattload power restore` or the next run restores a power state that it had "
            "set"
        )

    def _log_hint(self) -> str:
        return f" (its log: {self._log})" if self._log else ""


def launch(
    program: Sequence[str], runs: Path, log: SamplerLog
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start ``program`` with a connection as its standard input; return its other end.

    Nothing waits for the program: it starts while the run goes on, up to its first command.

    Raises:
        PowerError: it can't be started.
    """
    ours, theirs = socket.socketpair()
    try:
        with theirs, interrupts.held():
            return ours, _start([*program, "--runs", str(runs)], theirs, log)
    except BaseException:
        ours.close()
        raise


@dataclass(frozen=True, slots=True)
class SamplerLog:
    """An open log; ``path`` is ``None`` if there is no place for one."""

    path: Path | None
    descriptor: int


def _open_log(path: Path) -> SamplerLog:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_folder(path.parent) as folder:
            return SamplerLog(path, folder.append(path.name))
    except (OSError, DataError):
        return SamplerLog(None, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))


def _start(
    command: Sequence[str], client: socket.socket, log: SamplerLog
) -> subprocess.Popen[bytes]:
    """Exec the sampler into its own session, with this wattload on its path."""
    root = str(Path(wattload.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    try:
        return subprocess.Popen(
            command,
            stdin=client.fileno(),
            stdout=log.descriptor,
            stderr=log.descriptor,
            start_new_session=True,
            close_fds=True,
            cwd="/",
            env=environment,
        )
    except OSError as error:
        raise PowerError(f"the sampler can't be started: {error}") from error
    finally:
        os.close(log.descriptor)


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PowerError(f"the sampler sent invalid JSON: {line[:80]!r}") from error
    if not isinstance(answer, dict):
        raise PowerError(f"the sampler sent JSON that is not an object: {line[:80]!r}")
    return answer


_clients: weakref.WeakSet[SamplerClient] = weakref.WeakSet()


def _forget_in_child() -> None:
    for client in list(_clients):
        client.close_in_child()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_in_child)
