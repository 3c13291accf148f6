"""The page of an index: the rows in one table, with a script of ours that sorts and filters it."""

from __future__ import annotations

from pathlib import Path

from wattload.reports.index.rows import FIGURES, TITLES, index_rows
from wattload.reports.page import style_sheet
from wattload.reports.plain import file_name
from wattload.reports.quantity import counted
from wattload.reports.template import policy, template

_FOLDER = Path(__file__).parent


def render_index(folder: Path, *, output: Path, redact: bool = False) -> str:
    """Return the index of the runs that lie in a folder, as HTML.

    Args:
        folder: the folder that run folders lie in.
        output: where the page will lie; its links lead from there. With ``redact`` it has none.
        redact: mask host names, serials and paths.

    Raises:
        RecordError: the folder does not exist or holds no run.
    """
    rows = index_rows(folder, output, redact=redact)
    broken = sum(bool(row.broken) for row in rows)
    style = style_sheet() + (_FOLDER / "index.css").read_text(encoding="utf-8")
    script = (_FOLDER / "index.js").read_text(encoding="utf-8")
    return template(_FOLDER / "index.html").render(
        title="Runs" if redact else f"Runs in {file_name(folder.resolve().name)}",
        count=counted(len(rows), "run"),
        broken=counted(broken, "record") if broken else "",
        columns=[(title, title in FIGURES) for title in TITLES],
        rows=rows,
        style=style,
        script=script,
        policy=policy(style, script),
    )
