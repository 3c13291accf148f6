"""All runs of a large page, a row each: what one run says in full is on its own page."""

from __future__ import annotations

from wattload.reports.blocks import Cell, Paragraph, Section, Table, columns, row
from wattload.reports.energy import energy_text
from wattload.reports.lines import Line, line_of
from wattload.reports.load import DETAILED_RUNS, Run
from wattload.reports.quantity import MISSING, counted, label, quantity
from wattload.reports.sections.wording import anchor, moment
from wattload.reports.subject import Subject

_COLUMNS = columns("run", "arm", "started", "standing", "#headline figures", "#energy")


def runs_section(subject: Subject) -> Section:
    """Return one row per run, in the order of the page's groups and arms."""
    said = Paragraph(
        f"These are {counted(len(subject.runs), 'run')}: more than {DETAILED_RUNS} are not drawn "
        "one by one. Name fewer runs for all that is known of each, or a folder with --index for "
        "a table that sorts and filters."
    )
    tables = [
        Table(
            columns=_COLUMNS,
            rows=[_row(subject, run) for run in subject.runs if run.record.workload.name == name],
            caption=f"Runs of {name}",
        )
        for name in dict.fromkeys(run.record.workload.name for run in subject.runs)
    ]
    return Section(anchor="runs", title="Runs", blocks=[said, *tables])


def _row(subject: Subject, run: Run) -> tuple[Cell, ...]:
    line = line_of(run.record)
    return row(
        Cell(line.run_id, anchor=anchor("run", line.run_id)),
        subject.arm(run),
        moment(line.started_utc),
        standing(line, subject.faults(run)),
        figures_text(line),
        energy_cell(line),
    )


def standing(line: Line, faults: tuple[str, ...]) -> Cell:
    """Return how a run ended and whether it is compared, with the first reason if not."""
    if faults:
        more = f"; and {len(faults) - 1} more" if len(faults) > 1 else ""
        return Cell("", "bad", "not compared as valid", f"{faults[0].rstrip('.')}{more}")
    return Cell("", "good", line.status)


def figures_text(line: Line) -> str:
    """Return the first headline figures of a run with their names."""
    parts = [
        f"{label(each.name, each.unit)} {quantity(each.value, each.unit)}" for each in line.figures
    ]
    return ", ".join(parts) or MISSING


def energy_cell(line: Line) -> Cell:
    """Return a run's energy with how it is known, or why there is none."""
    if line.energy is None:
        return Cell(MISSING, "open", remark="no timed phase was finished")
    text = energy_text(line.energy)
    words = line.energy.reason if text == MISSING else line.energy.words
    return Cell(text, "" if line.energy.ranks else "quiet", remark=words)
