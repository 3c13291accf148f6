"""The process that draws charts: its death costs charts, not the page.

vl-convert is a browser engine: it aborts its process when it runs out of memory or address space,
or when it meets text that it did not expect. One process draws all charts of a page, because it
needs a second to start. It starts early, beside the loading of runs.
"""

from __future__ import annotations

import atexit
import json
import re
import signal
import subprocess
import sys
from contextlib import suppress
from functools import lru_cache
from multiprocessing.connection import Connection, Pipe

from wattload.reports.sanitize import UNSEEN, json_escape

VEGALITE_VERSION = "6.4"
DEADLINE_S = 120.0
"""The longest time for one chart; a large one takes less than a second."""
MOST_DEATHS = 2
"""After so many deaths in a row, no further process is started."""

_WARM_UP = b'{"data":{"values":[{"a":1}]},"mark":"bar","encoding":{"x":{"field":"a"}}}'
_JSON_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")
_CONTROLS = {"b": "u0008", "f": "u000c", "r": "u000d"}


class ChartError(Exception):
    """A chart could not be drawn; the message is a sentence for its place on the page."""


class Renderer:
    """The process, seen from this one: started at the first use, and again after a death."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._deaths = 0
        self.failures: list[str] = []
        """Why charts are missing, one sentence for each of them."""

    def start(self) -> None:
        """Start the process if none runs, and let it get ready for its first chart."""
        if self._process is not None or self._deaths >= MOST_DEATHS:
            return
        own_end, child_end = Pipe()
        with child_end:
            number = child_end.fileno()
            command = [sys.executable, "-P", "-m", __name__, str(number)]
            none = subprocess.DEVNULL
            try:
                self._process = subprocess.Popen(
                    command, pass_fds=[number], stdin=none, stdout=none, stderr=none
                )
            except OSError:
                own_end.close()
                return
        self._connection = own_end

    def draw(self, document: bytes) -> str:
        """Return a Vega-Lite document, as JSON, drawn as SVG.

        Raises:
            ChartError: it can't be drawn, or the process died of it.
        """
        try:
            svg = self._drawn(readable(document.decode()))
        except ChartError as error:
            self.failures.append(str(error))
            raise
        self._deaths = 0
        return svg

    def end(self) -> None:
        """End the process; ``draw`` starts another."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def _drawn(self, document: str) -> str:
        drawn, text = self._answer(document)
        if not drawn and (plain := _without_traps(document)) != document:
            drawn, text = self._answer(plain)
        if not drawn:
            raise ChartError(f"This chart is missing: it can't be drawn ({text}).")
        return text

    def _answer(self, document: str) -> tuple[bool, str]:
        """Return whether the process drew the chart, and the SVG or the reason."""
        self.start()
        if self._connection is None:
            raise ChartError("This chart is missing: the process that draws charts can't start.")
        try:
            self._connection.send_bytes(document.encode())
            if not self._connection.poll(DEADLINE_S):
                self._bury()
                raise ChartError(
                    f"This chart is missing: it was not drawn within {DEADLINE_S:.0f} s."
                )
            kind, _, text = self._connection.recv_bytes().decode().partition("\n")
        except (EOFError, OSError, ValueError) as error:
            cause = self._bury()
            raise ChartError(
                f"This chart is missing: the process that draws charts ended ({cause}), as it does "
                "when memory or address space (ulimit -v) is short."
            ) from error
        return kind == "svg", text

    def _bury(self) -> str:
        """End the process and return how it ended."""
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            if process is not None:  # its death closed the connection just before
                process.wait(timeout=1)
        status = process.poll() if process is not None else None
        self.end()
        self._deaths += 1
        if status is None:
            return "without an answer"
        if status < 0:
            with suppress(ValueError):
                return f"by {signal.Signals(-status).name}"
        return f"with status {status}"


@lru_cache(maxsize=1)
def renderer() -> Renderer:
    """Return the renderer of this process; it ends with it."""
    made = Renderer()
    atexit.register(made.end)
    return made


def readable(document: str) -> str:
    r"""Return a JSON document without characters that an SVG can't hold: ``\u0001`` as text."""
    if "\\" in document:
        document = _JSON_ESCAPE.sub(_as_text, document)
    return UNSEEN.sub(lambda found: f"\\{json_escape(found.group())}", document)


def _without_traps(document: str) -> str:
    """Return a JSON document without characters that Vega draws in most places only.

    It shortens text between the halves of a character beyond 16 bits, and can't measure a half. In
    the title of an axis it takes a line break for the end of an expression.
    """
    plain = _ASTRAL.sub("\N{REPLACEMENT CHARACTER}", document)
    return _JSON_ESCAPE.sub(lambda found: " " if found.group(1) in "nt" else found.group(), plain)


def _as_text(escape: re.Match[str]) -> str:
    code = _CONTROLS.get(escape.group(1), escape.group(1))
    unseen = len(code) > 1 and UNSEEN.match(chr(int(code[1:], 16)))
    return f"\\\\{code}" if unseen else escape.group()


def main() -> None:
    """Draw the documents received until the connection is closed."""
    import vl_convert

    def drawn(document: bytes) -> str:
        # With an empty list of base URLs a chart that names a URL is refused, and none is fetched.
        svg: str = vl_convert.vegalite_to_svg(
            json.loads(document),  # exact, which vl-convert's own parser is not
            vl_version=VEGALITE_VERSION,
            allowed_base_urls=[],
            show_warnings=False,
        )
        return svg

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one
    with Connection(int(sys.argv[1])) as connection:
        drawn(_WARM_UP)
        with suppress(EOFError, OSError):
            while True:
                document = connection.recv_bytes()
                try:
                    answer = f"svg\n{drawn(document)}"
                except ValueError as error:
                    answer = f"error\n{' '.join(str(error).splitlines()[:2])[:200]}"
                connection.send_bytes(answer.encode())


if __name__ == "__main__":
    main()
