"""The console of all tables and trees: what it prints can't control the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from wattload.cli.escapes import Escaped, escaped


class Console(rich.console.Console):
    """Escapes every text, and writes its own colours and movements past ``Escaped``."""

    def __init__(self, *, stderr: bool = False, **options: Any) -> None:
        """Print to standard output or error; ``options`` are those of rich."""
        stream = sys.stderr if stderr else sys.stdout
        plain: Any = stream.plain if isinstance(stream, Escaped) else stream
        super().__init__(file=plain, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=escaped(segment.text))
