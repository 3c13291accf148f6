"""The run's side of the sampler: start or find it, tell it of the run, take what it says.

Once a run has been announced by ``hello``, the sampler undoes everything whatever becomes of this
process; closing the connection without ``finish`` is the run's death, and the sampler's to record.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pydantic import BaseModel, ValidationError

from wattload import __version__
from wattload.core import errors
from wattload.core.errors import PowerError, WattloadError
from wattload.power.leftovers import Leftover, undo_leftovers
from wattload.power.sampler.launch import PROGRAM, launch
from wattload.power.sampler.peer import peer_of
from wattload.power.sampler.protocol import PROTOCOL_VERSION, encode
from wattload.power.sampler.reports import FinishReport, OpenReport, StatusReport

if TYPE_CHECKING:
    from wattload.power.config import PowerConfig

_ANSWER_TIMEOUT_S = 180.0
"""Longer than the slowest power state change that is waited for."""

_END_TIMEOUT_S = 10.0
_RECEIVE_BYTES = 64 * 1024

_MOST_ANSWER_BYTES = 64 << 20
"""What no answer is longer than: a sampler that goes on and on is none."""

SOCKET_VARIABLE = "WATTLOAD_SAMPLER_SOCKET"

Report = TypeVar("Report", bound=BaseModel)


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
        _clients.add(self)

    @classmethod
    def spawn(
        cls,
        runs_dir: Path,
        log_path: Path | None = None,
        *,
        program: Sequence[str] = PROGRAM,
    ) -> SamplerClient:
        """Start a sampler of this process's own and connect to it; takes some 0.2 s.

        It is exec'ed into a session of its own and inherits no descriptor: whoever kills the run's
        process group does not reach it. ``log_path`` gets what it has to say, by default a hidden
        file in ``runs_dir``, which must exist.

        Raises:
            PowerError: it did not start; the message names the log.
        """
        log_path = log_path or runs_dir.absolute() / ".sampler.log"
        stream, process = launch(program, runs_dir.absolute(), log_path)
        return cls(stream, process, log_path)

    @classmethod
    def connect(cls, socket_path: Path) -> SamplerClient:
        """Connect to a sampler service.

        Raises:
            PowerError: nothing listens there, it may not be used by this user, or is neither
                root's nor this user's own.
        """
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
                f"{socket_path} is served by user {server.uid}, who is neither root nor you "
                f"({os.geteuid()}), and is not believed; name root's socket in "
                "power.sampler_socket"
            )
        return cls(stream, None, None)

    @property
    def pid(self) -> int | None:
        """The process of a sampler that was spawned here, ``None`` for a service."""
        return self._process.pid if self._process else None

    def hello(self, run_id: str) -> None:
        """Announce a run whose folder, with ``draft.json`` in it, exists."""
        answer = self._ask("hello", protocol=PROTOCOL_VERSION, run_id=run_id)
        self._version = str(answer.get("version"))

    def open(
        self, config: PowerConfig, *, devices: Sequence[str], block_devices: Sequence[str]
    ) -> OpenReport:
        """Set the power state and open the sources.

        Args:
            config: what is asked of power.
            devices: controllers under the targets by the kernel's names (``nvme0``), and other
                leaves of their block stacks (``vda``), for which a data sheet may stand.
            block_devices: devices whose bytes are counted over time (``nvme0n1``, ``vda``).

        Raises:
            PowerError: the request can't be met; nothing is set. Its class is the sampler's.
        """
        request = asdict(config)
        del request["sampler_socket"]  # this side's own
        answer = self._ask(
            "open", request=request, devices=list(devices), block_devices=list(block_devices)
        )
        return self._report(OpenReport, answer)

    def start(self) -> None:
        """Begin to sample."""
        self._ask("start")

    def quiet(self, *, is_on: bool) -> None:
        """Have the sampler leave the drives alone, or read them again; other meters go on."""
        self._ask("quiet", on=is_on)

    def status(self) -> StatusReport:
        """Return how far the sampler is."""
        return self._report(StatusReport, self._ask("status"))

    def finish(self) -> FinishReport:
        """End sampling; the power state is restored when this returns."""
        return self._report(FinishReport, self._ask("finish"))

    def abort(self, status: str, reason: str) -> None:
        """Undo everything and have the sampler write the run's record, if it has none.

        ``status`` is ``failed`` or ``aborted``.
        """
        self._ask("abort", status=status, reason=reason)

    def alive(self) -> bool:
        """Return whether the sampler is still there."""
        if self._process is not None and self._process.poll() is not None:
            return False
        try:
            if not select.select([self._stream], [], [], 0)[0]:
                return True
            return bool(self._stream.recv(1, socket.MSG_PEEK))
        except (OSError, ValueError):
            return False

    @staticmethod
    def recover(run_id: str) -> list[Leftover]:
        """Undo by the journal what a sampler that was killed could not; returns what became of it.

        Needs the permission that setting a power state needs; a service does it itself at its
        next run.
        """
        return [leftover for leftover in undo_leftovers() if leftover.run_id == run_id]

    def close(self) -> None:
        """End the connection and wait for a sampler that was spawned here; safe to call twice."""
        _clients.discard(self)
        self._stream.close()
        if self._process is None:
            return
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            # Still restoring a slow drive: it is its own master and ends by itself.
            return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close_in_child(self) -> None:
        """Drop a forked child's copy of the connection, which would hide this process's death."""
        with contextlib.suppress(OSError):
            os.close(self._stream.detach())

    def _ask(self, command: str, **fields: object) -> Mapping[str, Any]:
        try:
            self._stream.settimeout(_ANSWER_TIMEOUT_S)
            self._stream.sendall(encode({"command": command, **fields}))
            answer = self._receive()
        except TimeoutError as error:
            raise PowerError(
                f"the sampler gave no answer to {command} in {_ANSWER_TIMEOUT_S:g} s{self._see()}"
            ) from error
        except (OSError, EOFError) as error:
            raise PowerError(self._epitaph(command)) from error
        if not answer.get("ok"):
            raise _error(str(answer.get("kind")), str(answer.get("error")))
        return answer

    def _receive(self) -> Mapping[str, Any]:
        while b"\n" not in self._buffer[-_RECEIVE_BYTES:]:
            data = self._stream.recv(_RECEIVE_BYTES)
            if not data:
                raise EOFError
            self._buffer += data
            if len(self._buffer) > _MOST_ANSWER_BYTES:
                raise PowerError(f"the sampler's answer is longer than {_MOST_ANSWER_BYTES} bytes")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return _decoded(bytes(line))

    def _report(self, model: type[Report], answer: Mapping[str, Any]) -> Report:
        try:
            return model.model_validate(answer.get("report"))
        except ValidationError as error:
            place = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise PowerError(
                f"the sampler (wattload {self._version}) answers what this wattload "
                f"({__version__}) does not understand ({place or 'report'}): start both from the "
                "same wattload"
            ) from error

    def _epitaph(self, command: str) -> str:
        status = ""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = f" with status {self._process.wait(1)}"
        return (
            f"the sampler ended{status} before it answered {command}{self._see()}; a power state "
            "that it had set is put back by `wattload power restore` or at the next run"
        )

    def _see(self) -> str:
        return f" (its log: {self._log})" if self._log else ""


_clients: weakref.WeakSet[SamplerClient] = weakref.WeakSet()


def _forget_in_child() -> None:
    for client in list(_clients):
        client.close_in_child()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PowerError(f"the sampler answered what is no JSON: {line[:80]!r}") from error
    if not isinstance(answer, dict):
        raise PowerError(f"the sampler answered what is no object: {line[:80]!r}")
    return answer


def _error(kind: str, sentence: str) -> WattloadError:
    """Return the error that the sampler met, as the class it had there."""
    found = getattr(errors, kind, PowerError)
    is_ours = isinstance(found, type) and issubclass(found, WattloadError)
    return found(sentence) if is_ours else PowerError(sentence)
