"""Make a folder tree of a manifest: the files and links that the kernel showed on some machine.

A manifest has one line per entry; ``#`` begins a comment. ``path<TAB>text`` is a file (line ends,
tabs and backslashes escaped), ``path<TAB>0x:hex`` a file of bytes, ``path -> target`` a symbolic
link and ``path/`` an empty folder. ``@TARGET@`` in a text stands for the target's folder.
"""

from __future__ import annotations

import re
from pathlib import Path

from wattload.core.sysfs import Roots

FOLDER = Path(__file__).resolve().parent
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def expand(name: str, into: Path, target: Path) -> Roots:
    """Expand the manifest ``name`` under ``into`` and return where its sysfs and proc are."""
    manifest = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    (into / "sys").mkdir(parents=True)
    (into / "proc").mkdir()
    for line in manifest.splitlines():
        if line and not line.startswith("#"):
            _make(line, into, target)
    return Roots(sys=into / "sys", proc=into / "proc", top=into)


def _make(line: str, into: Path, target: Path) -> None:
    path, tab, content = line.partition("\t")
    if tab:
        write(into / path, _bytes(content, target))
    elif " -> " in line:
        path, _, destination = line.partition(" -> ")
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).symlink_to(destination)
    else:
        (into / path).mkdir(parents=True, exist_ok=True)


def _bytes(content: str, target: Path) -> bytes:
    if content.startswith("0x:"):
        return bytes.fromhex(content[3:])
    text = re.sub(r"\\.", lambda match: _ESCAPES[match[0]], content)
    return text.replace("@TARGET@", str(target)).encode()


def write(path: Path, content: bytes | str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
