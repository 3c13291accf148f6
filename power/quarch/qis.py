"""A client of QIS, the Quarch Instrument Server: one line asks, lines up to a ``>`` answer.

The protocol is the one that QIS documents in its ``help.txt`` (v1.47), that quarchpy 2.2.23 speaks,
and that QIS 1.55.1 was seen to answer without a module. quarchpy itself is not used: it takes some
50 MB and a Java server with it, starts a thread for each stream, writes it to a file and keeps no
time of what arrives.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass

from wattload.core.errors import PowerError

CURSOR = b"\r\n>"
"""Ends every answer. In XML a ``>`` never follows a line's end."""

ANSWER_TIMEOUT_S = 5.0

_LINE_END = b"\r\n"
_CONNECT_TIMEOUT_S = 5.0
_RECEIVE_BYTES = 256 * 1024
_LONGEST_ANSWER_BYTES = 16 * 1024 * 1024
"""A block of stripes is at most 3072 lines; far more than that is no answer."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What ``stream?`` says: ``Running``, or ``Stopped:`` and why."""

    sentence: str

    @property
    def is_running(self) -> bool:
        """Whether the module streams."""
        return self.sentence.lower().startswith("running")

    @property
    def lost_data(self) -> bool:
        """Whether stripes were dropped because a buffer was full."""
        told = self.sentence.lower()
        return "overrun" in told or "out of buffer" in told


class Qis:
    """A connection to QIS, for one module.

    Raises:
        PowerError: nothing answers there.
    """

    def __init__(self, host: str, port: int, module: str) -> None:
        self.place = f"{host}:{port}"
        self.module = module
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise PowerError(
                f"no QIS answers on {self.place} ({error.strerror or error}); start it beside the "
                "module, or say where it is by power.quarch.host= and power.quarch.port="
            ) from error
        try:
            self._skip_welcome()
        except PowerError:
            self.close()
            raise

    def ask(self, command: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Return the module's or the server's answer to a command for the module, cursor off.

        Raises:
            PowerError: the connection is lost, or the answer does not come or end in time.
        """
        return self._exchange(f"{self.module} {command}", timeout_s)

    def ask_server(self, command: str) -> str:
        """Return the answer to a command for QIS itself; see ``ask``."""
        return self._exchange(command, ANSWER_TIMEOUT_S)

    def stream_state(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> StreamState:
        """Return whether the module streams, and if not why."""
        lines = self.ask("stream?", timeout_s=timeout_s).splitlines()
        return StreamState(lines[0].strip() if lines else "")

    def close(self) -> None:
        """Give the connection back; safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _skip_welcome(self) -> None:
        """Read the greeting: one line with the version, in QIS 1.55 without a cursor behind it."""
        try:
            greeting = b""
            while not greeting.endswith((_LINE_END, CURSOR)):
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    raise PowerError(f"{self.place} hung up: is it QIS that listens there?")
                greeting += part
        except OSError as error:
            raise PowerError(f"{self.place} does not greet as QIS does ({error})") from error

    def _exchange(self, line: str, timeout_s: float) -> str:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(line.encode() + b"\r\n")
            answer = bytearray()
            while not answer.endswith(CURSOR):
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    raise PowerError(f"QIS on {self.place} hung up over {line!r}")
                answer += part
                if len(answer) > _LONGEST_ANSWER_BYTES:
                    raise PowerError(f"QIS on {self.place} does not end its answer to {line!r}")
        except OSError as error:
            raise PowerError(f"QIS on {self.place} gave no answer to {line!r} ({error})") from error
        # A greeting's cursor, if it comes late, stands before the first answer.
        return answer[: -len(CURSOR)].decode(errors="replace").removeprefix(">")
