"""What is printed on a terminal: aligned lines, wrapped, in colours that follow ``NO_COLOR``.

On one that is not UTF-8, characters that it lacks are spelt in ASCII.
"""

from __future__ import annotations

import codecs
import errno
import os
import select
import shlex
import sys
import time
from collections.abc import Iterable, Sequence
from io import BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wattload.cli.escapes import printable
from wattload.core.host_paths import on_host

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LABEL_WIDTH = 12
NARROWEST = 20
"""Texts are wrapped at this width even on a narrower terminal."""

_ERRORS = "wattload-ascii"
_SPELLINGS = {
    "±": "+/-",
    "≤": "<=",
    "≥": ">=",
    "÷": "/",
    "×": "x",  # noqa: RUF001 - the sign is meant
    "µ": "u",
    "°": "deg ",
    "–": "-",  # noqa: RUF001 - the dash is meant
    "→": "->",
    "\u00a0": " ",
    "\u202f": " ",
}
"""Signs of numbers, units and ranges, and the spaces between digits."""


class Line(NamedTuple):
    """A line: its label, its text, its style, and whether it may be wrapped."""

    label: str
    text: str
    style: str = ""
    wraps: bool = True


class Output(FileIO):
    """A standard stream of this process; what is written after its reader has left is dropped.

    Readers leave in the middle of a run: ``head`` has its line, or a terminal is closed. The file
    descriptor is then ``/dev/null``, also for libraries in C and for programs started later.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.has_reader = True
        self._is_terminal = self.isatty()

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            is_hang_up = self._is_terminal and error.errno == errno.EIO
            if error.errno not in (errno.EPIPE, errno.ECONNRESET) and not is_hang_up:
                raise
        self.has_reader = False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        return super().write(content)


def outlive_readers() -> None:
    """Let no command end, or end in another way, because nobody reads its output any more."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, TextIOWrapper):  # ``None`` if it was closed
            output = Output(stream.fileno())
            wrapped = TextIOWrapper(
                output if stream.write_through else BufferedWriter(output),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            setattr(sys, name, wrapped)
    if sys.stderr is None:  # closed: ``print`` would write to standard output
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end


def wait_for_reader(seconds: float) -> bool:
    """Wait; return at once, and false, when nobody reads standard output any more."""
    buffer = getattr(sys.stdout, "buffer", None)
    output = getattr(buffer, "raw", buffer)  # there is no buffer with PYTHONUNBUFFERED
    if not isinstance(output, Output):
        time.sleep(seconds)
        return True
    poll = select.poll()
    poll.register(output, 0)  # only hang-ups and errors
    return output.has_reader and not poll.poll(1000 * seconds)


def print_lines(heading: str, lines: Sequence[Line]) -> None:
    """Print aligned lines to standard output, wrapped on a terminal only."""
    from rich.padding import Padding
    from rich.text import Text

    from wattload.cli.console import Console

    console = Console()
    if heading:
        console.print(Text(printable(heading), style="bold"), soft_wrap=not console.is_terminal)
    indent = LABEL_WIDTH + 2
    for line in lines:
        label = f"  {printable(line.label):<{LABEL_WIDTH - 1}} "
        start = Text(label, style="dim" if line.label else "")
        text = Text(printable(line.text), style=line.style)
        if not console.is_terminal or not line.wraps:
            console.print(Text.assemble(start, text), soft_wrap=True)
            continue
        rows = text.wrap(console, max(NARROWEST, console.width - indent))
        console.print(Text.assemble(start, *rows[:1]))
        for row in rows[1:]:
            console.print(Padding(row, (0, 0, 0, indent), expand=False))


def command(name: str, paths: Iterable[Path], host: str = "") -> str:
    """Return a command on runs, quoted for a shell, after the host that has them if it is named."""
    words = shlex.join(["wattload", name, *(str(on_host(path)) for path in paths)])
    return f"on {host}: {words}" if host else words


def place(path: Path, host: str) -> str:
    """Return a path, after the host that has it if it is named: ``node1:/runs/record.json``."""
    return f"{host}:{path}" if host else str(path)


def spell_what_is_missing() -> None:
    """Let standard output and error spell characters that their encoding lacks, or print ``?``."""
    codecs.register_error(_ERRORS, _spelt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors=_ERRORS)


def _spelt(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SPELLINGS.get(letter, "?") for letter in missing), error.end
