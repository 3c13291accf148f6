"""The page: sections through one template, self-contained, the same bytes for the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from wattload.core.errors import ConfigError
from wattload.reports.blocks import Section
from wattload.reports.exports.document import json_data
from wattload.reports.load import Run
from wattload.reports.sections.accelerators import accelerators_section
from wattload.reports.sections.claims import claims_section
from wattload.reports.sections.comparison import comparison_section
from wattload.reports.sections.curves import curves_section
from wattload.reports.sections.inputs import inputs_section
from wattload.reports.sections.method import method_section
from wattload.reports.sections.overtime import arms_overtime_section
from wattload.reports.sections.run import run_sections
from wattload.reports.sections.steady import steady_section
from wattload.reports.sections.summary import summary_section, title
from wattload.reports.sections.trust import trust_section
from wattload.reports.subject import Subject, make_subject
from wattload.reports.template import policy, template
from wattload.reports.themes import style_rules

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


def render_page(runs: Sequence[Run], *, by: str = "label", forced: bool = False) -> str:
    """Return the page of these runs as HTML.

    Args:
        runs: at least one, from ``load_runs``.
        by: what tells the arms of a comparison apart: see ``make_subject``.
        forced: compare even what is barred from it; the page says so.

    Raises:
        ConfigError: there is no run, or ``by`` is unknown.
    """
    if not runs:
        raise ConfigError("a report needs at least one run; name a run folder such as runs/*")
    return page_of(make_subject(runs, by, forced=forced))


def page_of(subject: Subject) -> str:
    """Return the page of a subject as HTML."""
    before = [section(subject) for section in BEFORE_RUNS]
    after = [section(subject) for section in AFTER_RUNS]
    sections = [*before, *run_sections(subject), *after]
    style = style_sheet()
    return template(_FOLDER / "page.html").render(
        title=title(subject),
        sections=[section for section in sections if section is not None],
        data=json_data(subject),
        style=style,
        policy=policy(style),
        versions=sorted({run.record.software.wattload for run in subject.runs}),
    )


@lru_cache(maxsize=1)
def style_sheet() -> str:
    """Return the whole style sheet: the page's own, and the colours of its charts."""
    return (_FOLDER / "page.css").read_text(encoding="utf-8") + "\n" + style_rules() + "\n"
