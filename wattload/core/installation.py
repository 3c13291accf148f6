"""How this wattload was installed, and the command that adds an extra to it.

PyPI does not have wattload, so the command names the checkout or the file it was installed from.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "wattload"
REBUILD_IMAGE = "EXTRAS={extras} docker compose -f docker/compose.yaml build"
"""In a container, whose image no longer has the files that wattload was installed from."""


def install_command(extras: Iterable[str], *, without_dependencies: Iterable[str] = ()) -> str:
    """Return the shell command that adds extras to this installation.

    ``without_dependencies`` are further packages whose own requirements can't be resolved.
    """
    names = ",".join(dict.fromkeys(extras))
    source = _source()
    if source is not None and not source[0].exists():
        return REBUILD_IMAGE.format(extras=names)
    if source is None:
        what = [f"{DISTRIBUTION}[{names}]"]
    elif source[1]:
        what = ["--editable", f"{source[0]}[{names}]"]
    else:
        what = [f"{source[0]}[{names}]"]
    parts = [[*_pip(), "install", *what]]
    parts += [[*_pip(), "install", "--no-deps", each] for each in without_dependencies]
    return " && ".join(shlex.join(words) for words in parts)


def _source() -> tuple[Path, bool] | None:
    """Return the path of the checkout or wheel, and whether it is editable (PEP 610).

    ``None`` for an installation from an index. A checkout may also have an ``egg-info`` folder that
    a build left, which Python finds first if it is started there; it does not name its source.
    """
    texts = (each.read_text("direct_url.json") for each in distributions(name=DISTRIBUTION))
    text = next(filter(None, texts), None)
    if text is None:
        return None
    found = json.loads(text)
    parts = urlsplit(found["url"])
    if parts.scheme != "file":
        return None
    return Path(unquote(parts.path)), bool(found.get("dir_info", {}).get("editable"))


def _pip() -> list[str]:
    """Return the words that start the pip of this Python: ``pip`` where the PATH finds it."""
    own = Path(sys.executable).with_name("pip")
    return ["pip"] if shutil.which("pip") == str(own) else [sys.executable, "-m", "pip"]
