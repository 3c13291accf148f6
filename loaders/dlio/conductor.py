"""Our side of the line to DLIO's processes: gives leave for epochs, counts batches, keeps times.

An epoch begins when every process is ready for it, and has ended when every process has told so.
Between the two epochs nothing of DLIO reads, so that the page cache can be emptied.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattload.core.harness import HarnessWatch
from wattload.loaders.dlio.program import Program
from wattload.loaders.sampleharness import Training

_CHUNK_BYTES = 1 << 16


@dataclass(slots=True)
class Witness:
    """What the processes told of one epoch, by rank: the fields of ``done`` and of ``spent``."""

    ready: set[int] = field(default_factory=set)
    batches: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    done: dict[int, dict[str, Any]] = field(default_factory=dict)
    spent: dict[int, dict[str, Any]] = field(default_factory=dict)


class Conductor:
    """Listens on a Unix socket at ``address``; ``witnesses`` has what was told, epoch by epoch."""

    def __init__(
        self,
        address: Path,
        training: Training,
        watch: HarnessWatch,
        prepare: Callable[[int], None],
    ) -> None:
        """Listen. ``prepare`` is called before each epoch but the first, ahead of the watch."""
        self.witnesses = [Witness() for _ in range(training.epochs)]
        self._training = training
        self._watch = watch
        self._prepare = prepare
        self._lines: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(str(address))
        self._door.listen()
        self._selector.register(self._door, selectors.EVENT_READ)

    def conduct(self, program: Program) -> None:
        """Return when the program has ended and all that it said was heard."""
        self._selector.register(program.descriptor, selectors.EVENT_READ)
        ended = False
        while not ended:
            for key, _ in self._selector.select():
                if key.fileobj is self._door:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)
                else:
                    ended = True
        for line in list(self._lines):
            self._hear_out(line)

    def close(self) -> None:
        """Hang up, which ends whatever still listens at the other end."""
        self._selector.close()
        self._door.close()
        for line in self._lines:
            line.close()

    def _accept(self) -> None:
        line, _ = self._door.accept()
        line.settimeout(1.0)
        self._lines[line] = b""
        self._selector.register(line, selectors.EVENT_READ)

    def _hear(self, line: socket.socket) -> bool:
        """Take in what has come; returns whether there may be more."""
        try:
            chunk = line.recv(_CHUNK_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self._selector.unregister(line)
            return False
        *messages, self._lines[line] = (self._lines[line] + chunk).split(b"\n")
        for message in messages:
            self._take(json.loads(message))
        return True

    def _hear_out(self, line: socket.socket) -> None:
        while line in self._selector.get_map() and self._hear(line):
            pass

    def _take(self, message: dict[str, Any]) -> None:
        stretch, rank = message["epoch"] - 1, message["rank"]
        witness = self.witnesses[stretch]
        if message["event"] == "ready":
            witness.ready.add(rank)
            if len(witness.ready) == self._training.accelerators:
                self._begin(stretch)
        elif message["event"] == "batch":
            step = witness.batches[rank]
            witness.batches[rank] += 1
            self._watch.moved(read_bytes=self._training.batch_bytes_read(stretch, rank, step))
        elif message["event"] == "done":
            witness.done[rank] = message
            if len(witness.done) == self._training.accelerators:
                self._watch.after(stretch)
        else:
            witness.spent[rank] = message

    def _begin(self, stretch: int) -> None:
        if stretch:
            self._prepare(stretch)
        self._watch.before(stretch)
        for line in self._lines:
            with suppress(ConnectionError):  # the program's own end says why that process has gone
                line.sendall(b"\0")
