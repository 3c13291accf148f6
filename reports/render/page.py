"""The HTML page.

Sections through one template, self-contained under a content security policy; the same records
give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.units import Unit
from wattload.reports.blocks import Section
from wattload.reports.charts.themes import style_rules
from wattload.reports.quantity import one_unit
from wattload.reports.render.json_export import json_data
from wattload.reports.sanitize import escape_unseen, is_wide, sanitize
from wattload.reports.sections.checks import trust_section
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.comparison import comparison_section
from wattload.reports.sections.method import method_section
from wattload.reports.sections.over_time import arms_overtime_section, steady_section
from wattload.reports.sections.provenance import inputs_section
from wattload.reports.sections.runs import run_sections
from wattload.reports.sections.summary import summary_section, title
from wattload.reports.sections.sweeps import accelerators_section, curves_section
from wattload.reports.stats.subject import Subject
from wattload.reports.stats.summary import first_screen

if TYPE_CHECKING:
    from jinja2 import Template

_FOLDER = Path(__file__).parent
BEFORE_RUNS: tuple[Callable[[Subject], Section | None], ...] = (
    summary_section,
    accelerators_section,
    comparison_section,
    curves_section,
    arms_overtime_section,
    steady_section,
    trust_section,
)
AFTER_RUNS: tuple[Callable[[Subject], Section | None], ...] = (
    claims_section,
    method_section,
    inputs_section,
)


def page_of(subject: Subject) -> str:
    """Return the page of a subject as HTML."""
    with one_unit(Unit.JOULES, first_screen(subject).energy_scale):
        before = [section(subject) for section in BEFORE_RUNS]
        after = [section(subject) for section in AFTER_RUNS]
        sections = [*before, *run_sections(subject), *after]
    style = style_sheet()
    return template(_FOLDER / "page.html").render(
        title=title(subject),
        sections=[section for section in sections if section is not None],
        data=json_data(subject, claims=True),
        style=style,
        policy=policy(style),
        versions=sorted({run.record.software.wattload for run in subject.runs}),
    )


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """Return the whole style sheet: the page's own, and the colours of its charts."""
    return (_FOLDER / "page.css").read_text(encoding="utf-8") + "\n" + style_rules() + "\n"


@lru_cache(maxsize=4)
def template(file: Path) -> Template:
    """Return a template; it escapes all text, and undefined variables are errors."""
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
    environment.filters["exact"] = lambda text: escape(escape_unseen(text))
    return environment.get_template(file.name)


def _shown(value: object) -> object:
    """Return the printed form of a value; plain text is sanitized, markup is not."""
    return sanitize(value) if type(value) is str else value


def policy(style: str, script: str = "") -> str:
    """Return the content security policy: no requests, one style sheet, at most one script."""
    parts = ["default-src 'none'", f"style-src '{_digest(style)}'"]
    if script:
        parts.append(f"script-src '{_digest(script)}'")
    return "; ".join([*parts, "img-src data:", "base-uri 'none'", "form-action 'none'"])


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
