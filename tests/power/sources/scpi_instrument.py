"""An instrument that speaks SCPI on a socket, a serial line or VXI-11, as a process of its own.

It answers as the manuals of the WT300 series say: one line per query, none to a command or to what
it does not know, whose error it queues. A file of JSON next to it decides how it answers, and is
read at every query; what it received is in another. It shares no code with the client.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import threading
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

WT310E = "YOKOGAWA,WT310E,C3XX00001V,F1.03"
VALUE = ":NUMERIC:NORMAL:VALUE? 1"
ITEM = ":NUMERIC:NORMAL:ITEM1 "
IGNORED = ("*CLS", ":NUMERIC:FORMAT ASCII")
VXI_READ, VXI_WRITE, VXI_LINK = 12, 11, 10


@dataclass
class Instrument:
    """One connection to it; how it measures and misbehaves is in ``state.json`` of its folder.

    Each has an error queue and an item of its own, so that none disturbs the next.
    """

    folder: Path
    item: str = "U,1"
    errors: list[str] = field(default_factory=list)

    def answer(self, command: str) -> tuple[bytes, float, float]:
        """Return the bytes of an answer, the seconds before it, and those between its pieces."""
        state = json.loads((self.folder / "state.json").read_text())
        with (self.folder / "received").open("a") as received:
            received.write(f"{command}\n")
        late_s = state["late_s"] if command == VALUE else state["late_all_s"]
        text = self._text(command, state)
        if text and state["garbage"] and command == VALUE:
            return b"\xff\x00\xfe\x80\n", 0.0, 0.0
        lines = f"{text}\n" * state["line_count"] if text else ""
        return lines.encode(), late_s, state["pause_s"]

    def _text(self, command: str, state: dict[str, Any]) -> str:
        if command == "*IDN?":
            return str(state["identity"])
        if command in (":STATUS:ERROR?", "SYST:ERR?"):
            return self.errors.pop(0) if self.errors else '0,"No error"'
        if command == "*CLS":
            self.errors.clear()
        if command.startswith(ITEM) and command.endswith(",1"):
            self.item = command.removeprefix(ITEM)
        elif command == VALUE:
            return str(state["watts"] if self.item == "P,1" else 230.1)
        elif command in state["queries"]:
            return str(state["queries"][command])
        elif command not in IGNORED:
            self.errors.append('113,"Undefined header"')
        return ""

    def hangs_up(self) -> bool:
        return bool(json.loads((self.folder / "state.json").read_text())["hangs_up"])


def serve_lines(
    instrument: Instrument, read: Callable[[], bytes], write: Callable[[bytes], Any]
) -> None:
    """Answer each line in order; a late answer holds up those after it."""
    pending = b""
    while piece := read():
        *lines, pending = (pending + piece).split(b"\n")
        for line in lines:
            if instrument.hangs_up():
                return
            data, late_s, pause_s = instrument.answer(line.decode().strip())
            time.sleep(late_s)
            for piece in [data[:3], data[3:]] if pause_s else [data]:
                write(piece)
                time.sleep(pause_s)


def serve_socket(instrument: Instrument, client: socket.socket) -> None:
    with client:
        try:
            serve_lines(instrument, lambda: client.recv(4096), client.sendall)
        except ConnectionError:
            return


def serve_vxi11(instrument: Instrument, client: socket.socket) -> None:
    """Answer the calls of VXI-11 (revision 1.0, B.6) on an ONC RPC connection (RFC 5531)."""
    pending = b""
    with client, client.makefile("rb") as stream:
        while head := stream.read(4):
            body = stream.read(struct.unpack(">I", head)[0] & 0x7FFFFFFF)
            xid, *_, procedure = struct.unpack_from(">6I", body)
            arguments = body[40:]
            if procedure == VXI_LINK:
                result = struct.pack(">4I", 0, 1, 0, 1024)
            elif procedure == VXI_WRITE:
                (size,) = struct.unpack_from(">I", arguments, 16)
                line = arguments[20 : 20 + size].decode().strip()
                pending, late_s, _ = instrument.answer(line)
                time.sleep(late_s)
                result = struct.pack(">2I", 0, size)
            elif procedure == VXI_READ and pending:
                padded = pending + bytes(-len(pending) % 4)
                result = struct.pack(">3I", 0, 4, len(pending)) + padded
            else:  # 15: a read without an answer times out; else success
                result = struct.pack(">3I", 15 if procedure == VXI_READ else 0, 0, 0)
            reply = struct.pack(">6I", xid, 1, 0, 0, 0, 0) + result
            client.sendall(struct.pack(">I", 0x80000000 | len(reply)) + reply)


def main(kind: str, folder: str) -> None:
    """Print the VISA resource, then serve until killed."""
    if kind == "serial":
        ours, theirs = os.openpty()
        tty.setraw(theirs)
        print(f"ASRL{os.ttyname(theirs)}::INSTR", flush=True)
        instrument = Instrument(Path(folder))
        serve_lines(instrument, lambda: os.read(ours, 4096), lambda data: os.write(ours, data))
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    is_vxi11 = kind == "vxi11"
    print(f"TCPIP::127.0.0.1{f',{port}::INSTR' if is_vxi11 else f'::{port}::SOCKET'}", flush=True)
    while True:
        serve = serve_vxi11 if is_vxi11 else serve_socket
        threading.Thread(
            target=serve, args=(Instrument(Path(folder)), server.accept()[0]), daemon=True
        ).start()


@dataclass
class Running:
    """A running instrument, and the controls of it."""

    folder: Path
    resource: str
    process: Popen[str]

    def set(self, **state: Any) -> None:
        """Change how it answers from the next query on."""
        path = self.folder / "state.json"
        new = self.folder / "state.new"
        new.write_text(json.dumps(json.loads(path.read_text()) | state))
        new.replace(path)

    @property
    def received(self) -> list[str]:
        return (self.folder / "received").read_text().splitlines()


STATE: dict[str, Any] = {
    "identity": WT310E, "watts": "12.500E+00", "late_s": 0.0, "late_all_s": 0.0, "pause_s": 0.0,
    "garbage": False, "hangs_up": False, "queries": {}, "line_count": 1,
}  # fmt: skip


@contextmanager
def running(kind: str, folder: Path, **state: Any) -> Iterator[Running]:
    """Start an instrument of a ``kind``: socket, serial or vxi11."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps(STATE | state))
    (folder / "received").touch()
    command = (sys.executable, __file__, kind, str(folder))
    with Popen(command, stdout=PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Running(folder, process.stdout.readline().strip(), process)
        finally:
            process.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
