"""A QIS with one module, after its ``help.txt`` and quarchpy's client; its energy is known.

Greeting and refusals are those of QIS 1.55.1 without a module. It shares no code with the client
under test; quarchpy's own client reads it in ``test_quarchpy.py``. As a program it streams in real
time.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

MODULE = "tcp::qtl1999-02-020"
GREETING = "$t v1.55.1 Sat Nov 21 07:49:47 UTC 2026\r\n"
BLOCK_STRIPES = 3072
BUFFER_STRIPES = 8_388_608

TWO_RAILS = (
    ("5V", "voltage", "mV"),
    ("5V", "current", "uA"),
    ("12V", "voltage", "mV"),
    ("12V", "current", "uA"),
)
"""Name, group and units of each channel, in the order of their positions."""

Values = Callable[[int], Sequence[int]]


def steady(index: int) -> Sequence[int]:
    """Return 5 V x 0.2 A + 12 V x 1 A = 13 W."""
    return (5_000, 200_000, 12_000, 1_000_000)


@dataclass
class Module:
    """What the module measures: ``values(n)`` are the integer channels of stripe n."""

    channels: Sequence[tuple[str, str, str]] = TWO_RAILS
    values: Values = steady
    period_us: int = 4
    name: str = MODULE
    extra_header: str = ""
    refuses: str = ""
    """The answer to ``rec stream`` instead of OK."""
    header_polls: int = 1
    """How often the header is not available at first."""


@dataclass
class QisMock:
    """A server on its own port; ``produce`` makes stripes available."""

    module: Module = field(default_factory=Module)
    real_time: bool = False
    """Stripes appear in real time, without ``produce``."""
    drift_ppm: float = 0.0
    greeting_parts: Sequence[str] | None = (GREETING,)
    """``None`` closes the connection at once."""
    commands: list[str] = field(default_factory=list)
    state: str = "Stopped:"
    faults: dict[str, bytes] = field(default_factory=dict)
    """Command to raw answer; ``b""`` closes the connection."""

    mute: set[str] = field(default_factory=set)
    """Commands that are not answered."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._produced = self._sent = 0
        self._dropped: list[int] = []
        self._header_misses = 0
        self._has_streamed = False
        self._began_ns = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._streams: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def produce(self, count: int) -> None:
        """Let the module take this many more readings."""
        with self._lock:
            self._produced += count

    def drop(self, count: int) -> None:
        """Let the module lose this many readings without reporting it."""
        with self._lock:
            self._sent += count
            self._produced += count

    def energy_j(self, start: int, end: int) -> float:
        """Return the joules of the stripes from ``start`` up to ``end``, by V x I of each rail."""
        scale = {"mV": 1e-3, "uA": 1e-6, "uW": 1e-6}
        watts = 0.0
        for index in range(start, end):
            found: dict[str, float] = {}
            for (rail, _, unit), value in zip(
                self.module.channels, self.module.values(index), strict=True
            ):
                found[rail] = found.get(rail, 1.0) * value * scale[unit]
            watts += sum(found.values())
        return watts * self.module.period_us * 1e-6

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for stream in self._streams:
            stream.close()

    def hang_up(self) -> None:
        """Close every connection."""
        for stream in self._streams:
            stream.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except OSError:
                return
            self._streams.append(stream)
            threading.Thread(target=self._talk, args=(stream,), daemon=True).start()

    def _talk(self, stream: socket.socket) -> None:
        if self.greeting_parts is None:
            stream.close()
            return
        try:
            for part in self.greeting_parts:
                stream.sendall(part.encode())
                time.sleep(0.01)
            for line in _lines(stream):
                self.commands.append(line)
                raw = next((self.faults[key] for key in self.faults if line.endswith(key)), None)
                if any(line.endswith(command) for command in self.mute):
                    continue
                if raw == b"":
                    stream.close()
                    return
                stream.sendall(raw if raw is not None else self._answer(line).encode() + b"\r\n>")
        except OSError:
            return

    def _answer(self, line: str) -> str:
        if line == "$list":
            return f"1) {self.module.name}"
        if line == "$version":
            return "v1.55.1"
        target, _, command = line.partition(" ")
        if target != self.module.name:
            return f"Device {target} Invalid or No Longer Valid"
        with self._lock:
            return self._of_module(command)

    def _of_module(self, command: str) -> str:
        answers: dict[str, Callable[[], str]] = {
            "hello?": lambda: "HD Programmable Power Module +Triggering",
            "rec stream": self._begin,
            "rec stop": self._end,
            "rec stream?": lambda: self.state,
            "stream?": self._status,
            "stream text header": self._header,
            "stream text all": self._block,
        }
        return answers.get(command, lambda: "OK")()

    def _end(self) -> str:
        self.state = "Stopped: User" if self.state == "Running" else self.state
        return "OK"

    def _status(self) -> str:
        return f"{self.state}\r\nStripes Buffered: {self._available()} of {BUFFER_STRIPES}"

    def _begin(self) -> str:
        if self.module.refuses:
            return self.module.refuses
        self.state, self._has_streamed = "Running", True
        self._produced = self._sent = 0
        self._header_misses = self.module.header_polls
        self._began_ns = time.monotonic_ns()
        return "OK"

    def _available(self) -> int:
        if self.real_time and self.state == "Running":
            elapsed_us = (time.monotonic_ns() - self._began_ns) / 1000
            self._produced = int(elapsed_us * (1 + self.drift_ppm * 1e-6) / self.module.period_us)
        return self._produced - self._sent

    def _header(self) -> str:
        if not self._has_streamed or self._header_misses > 0:
            self._header_misses -= 1
            return "Header Not Available"
        return header_xml(self.module)

    def _block(self) -> str:
        count = min(BLOCK_STRIPES, self._available())
        rows = [
            " ".join(map(str, (index * self.module.period_us, *self.module.values(index))))
            for index in range(self._sent, self._sent + count)
        ]
        self._sent += count
        return "\r\n".join([*rows, "eof"] if count < BLOCK_STRIPES else rows)


def header_xml(module: Module) -> str:
    """Return the header as printed in appendix A of QIS's ``help.txt``."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>',
        "<header>",
        "\t<version>V3</version>",
        f"\t<devicePeriod>{module.period_us}us</devicePeriod>",
        f"\t<mainPeriod>{module.period_us}uS</mainPeriod>",
        module.extra_header,
        "\t<channels>",
        "\t\t<channel><name>Status</name><group>status</group><units>NA</units>"
        "<maxTValue>0</maxTValue><dataPosition>0</dataPosition></channel>",
    ]
    for position, (name, group, units) in enumerate(module.channels, start=1):
        lines.append(
            f"\t\t<channel><name>{name}</name><group>{group}</group><units>{units}</units>"
            f"<maxTValue>16777216</maxTValue><dataPosition>{position}</dataPosition></channel>"
        )
    return "\r\n".join([*lines, "\t</channels>", "</header>"])


def _lines(stream: socket.socket) -> Iterator[str]:
    buffer = b""
    while data := stream.recv(4096):
        buffer += data
        *whole, buffer = buffer.split(b"\r\n")
        for line in whole:
            yield line.decode()


@contextmanager
def qis(module: Module | None = None, **options: Any) -> Iterator[QisMock]:
    """Serve until the block ends."""
    mock = QisMock(module or Module(), **options)  # fields of QisMock
    try:
        yield mock
    finally:
        mock.close()


def main() -> None:
    """Stream in real time until standard input ends; print the port."""
    with qis(real_time=True) as mock:
        print(mock.port, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
