"""Templates, and the content security policy of the pages that they make."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.reports.plain import exact, is_wide, plain

if TYPE_CHECKING:
    from jinja2 import Template


@lru_cache(maxsize=4)
def template(file: Path) -> Template:
    """Return a template of ours; it escapes every text, and refuses what it was not given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import escape

    environment = Environment(
        loader=FileSystemLoader(file.parent),
        autoescape=True,
        finalize=_shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["wide"] = is_wide
    environment.filters["exact"] = lambda text: escape(exact(text))
    return environment.get_template(file.name)


def _shown(value: object) -> object:
    """Return what a template prints; a text that is no markup yet is made plain."""
    return plain(value) if type(value) is str else value


def policy(style: str, script: str = "") -> str:
    """Return the policy: nothing is fetched, one style sheet holds, one script runs or none."""
    parts = ["default-src 'none'", f"style-src '{_digest(style)}'"]
    if script:
        parts.append(f"script-src '{_digest(script)}'")
    return "; ".join([*parts, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
