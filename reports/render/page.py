"""The HTML page.

Sections through one template, self-contained under a content security policy; the same records
in the same place, to which it links, give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from wattload import __version__
from wattload.core.units import Unit
from wattload.reports.blocks import Section
from wattload.reports.charts.themes import style_rules
from wattload.reports.render.json_export import json_data
from wattload.reports.sanitize import escape_unseen, is_wide, sanitize
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.consequences import consequences_section
from wattload.reports.sections.first import byline, failed_check, first_section, heading, title
from wattload.reports.sections.hosts import hosts_section
from wattload.reports.sections.machine import conditions_section
from wattload.reports.sections.power import energy_section, states_section
from wattload.reports.sections.provenance import inputs_section, method_section
from wattload.reports.sections.published import TITLE, published_section, published_texts
from wattload.reports.sections.ratios import noise_section
from wattload.reports.sections.runs import runs_section
from wattload.reports.sections.trust import trust_section
from wattload.reports.sections.wording import sentence_of
from wattload.reports.sections.workload import workload_sections
from wattload.reports.stats.sentence import finding
from wattload.reports.stats.subject import Subject
from wattload.reports.stats.summary import first_screen
from wattload.results.quantity import counted, listed, one_unit

if TYPE_CHECKING:
    from jinja2 import Template

_FOLDER = Path(__file__).parent
AFTER_WORKLOADS: tuple[Callable[[Subject], Section | None], ...] = (
    consequences_section,
    hosts_section,
    energy_section,
    states_section,
    trust_section,
    noise_section,
    conditions_section,
    published_section,
    runs_section,
    method_section,
    inputs_section,
)


def page_of(subject: Subject, *, claims: bool = False) -> str:
    """Return the page of a subject as HTML; with ``claims``, published figures are on it too."""
    if not subject.runs:
        return _published_page(subject)
    screen = first_screen(subject)
    with one_unit(Unit.JOULES, screen.energy_scale):
        first = first_section(subject, screen)
        sections: list[Section | None] = [*workload_sections(subject)]
        sections += [section(subject) for section in AFTER_WORKLOADS]
        if claims:
            sections.append(claims_section(subject))
    return _rendered(
        title=title(subject),
        finding=finding(subject),
        arms=heading(subject),
        byline=byline(subject, screen),
        banner=sentence_of(screen.banner),
        failed=failed_check(screen),
        first=first,
        sections=[section for section in sections if section is not None],
        data=json_data(subject, claims=claims),
        versions=sorted({run.record.software.wattload for run in subject.runs}),
    )


def _published_page(subject: Subject) -> str:
    """Return a page of published results alone."""
    sets = subject.published
    trees = sorted({each.tree for each in sets})
    return _rendered(
        title=TITLE,
        finding=published_texts(subject)[0],
        arms=[("", TITLE)],
        byline=f"{counted(len(sets), 'set')} of {listed(trees)}",
        banner="",
        failed="",
        first=[],
        sections=[published_section(subject)],
        data=json_data(subject),
        versions=[__version__],
    )


def _rendered(**parts: object) -> str:
    style, script = style_sheet(), page_script()
    return template(_FOLDER / "page.html").render(
        **parts, style=style, script=script, policy=policy(style, script)
    )


def relative_link(target: Path, page: Path) -> str:
    """Return the link from a page to a file or folder, relative to the page and quoted."""
    return quote(os.fsencode(os.path.relpath(target.resolve(), page.parent.resolve())))


@lru_cache(maxsize=1)
def page_script() -> str:
    """Return the page's script, which only adds to charts that are whole without it."""
    return (_FOLDER / "page.js").read_text(encoding="utf-8")


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
