"""The rows of an index: one per run folder, of a broken record too, which says what is wrong."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from wattload.core.errors import RecordError
from wattload.core.record.run import RunRecord, StoredRecord, read_record, read_stored
from wattload.core.record.seal import SealState
from wattload.reports.energy import energy_text
from wattload.reports.lines import Line, line_of
from wattload.reports.load import record_files
from wattload.reports.plain import file_name
from wattload.reports.quantity import MISSING, label, quantity
from wattload.reports.redact import Masker
from wattload.reports.sections.wording import moment
from wattload.reports.subject import UNKNOWN_STATE

PAGE = "report.html"
"""What a run's own page is called where it lies in the run's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a row: its text, what it is sorted by, a remark, and a tone."""

    text: str
    key: str = ""
    remark: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexRow:
    """One run folder: where its name leads to, and its fields; ``broken`` says why it has none."""

    name: str
    link: str
    fields: tuple[Field, ...] = ()
    broken: str = ""


TITLES = (
    "Started, UTC",
    "Workload",
    "Label",
    "Drive",
    "Power state",
    "Scale",
    "Status",
    "Failed checks",
    "Headline figures",
    "Energy",
)
FIGURES = frozenset({"Failed checks", "Headline figures", "Energy"})
"""The columns that are sorted by number."""


def index_rows(folder: Path, output: Path, *, redact: bool) -> tuple[IndexRow, ...]:
    """Return a row for each run folder in a folder, the latest name first.

    Raises:
        RecordError: the folder does not exist or holds no run.
    """
    if not folder.is_dir():
        raise RecordError(f"{folder} is no folder; --index takes a folder of runs such as runs")
    files = record_files(folder)[::-1]
    if not files:
        raise RecordError(f"{folder} holds no run; name the folder that run folders lie in")
    masker = _masker(files) if redact else None
    return tuple(_row(file, output, masker) for file in files)


def _masker(files: Sequence[Path]) -> Masker:
    def readable() -> list[RunRecord]:
        records = []
        for file in files:
            try:
                records.append(read_record(file))
            except RecordError:
                continue  # its row shows nothing of it but why
        return records

    return Masker(readable())


def _row(file: Path, output: Path, masker: Masker | None) -> IndexRow:
    try:
        stored = read_stored(file)
    except RecordError as error:
        return _broken(file, output, str(error), masked=masker is not None)
    if masker is not None:
        record = masker.record(stored.record)
        # A folder may have any name; of what a record says of itself it is known what to mask.
        return IndexRow(name=record.run_id, link="", fields=_fields(record, stored))
    link = _link(file.parent, output)
    return IndexRow(
        name=file_name(file.parent.name), link=link, fields=_fields(stored.record, stored)
    )


def _broken(file: Path, output: Path, error: str, *, masked: bool) -> IndexRow:
    """Return the row of a record that can't be read; masked, it says no more than that."""
    if masked:
        return IndexRow(name="a run without a name", link="", broken="it can't be read")
    # The row names the folder: the message need not, and would not be the same from elsewhere.
    reason = file_name(error.removeprefix(f"{file} "))
    name, link = file_name(file.parent.name), _link(file.parent, output)
    return IndexRow(name=name, link=link, broken=reason)


def _link(folder: Path, output: Path) -> str:
    """Return where a run is shown, as seen from the index: its own page, else its folder."""
    page = folder / PAGE
    target = page if page.is_file() else folder
    place = os.path.relpath(target.resolve(), output.parent.resolve())
    return quote(os.fsencode(place) + (b"" if page.is_file() else b"/"))


def _fields(record: RunRecord, stored: StoredRecord) -> tuple[Field, ...]:
    line = line_of(record)
    return (
        Field(text=moment(line.started_utc).removesuffix(" UTC"), key=line.started_utc),
        *(Field(text=text) for text in (line.workload, line.label, line.drive)),
        Field(text="unknown" if line.state == UNKNOWN_STATE else line.state),
        Field(text=line.scale),
        _status(line, stored.seal),
        _checks(line),
        _figures(line),
        _energy(line),
    )


def _status(line: Line, seal: SealState) -> Field:
    if seal == "broken":
        return Field(text=line.status, remark="edited after the run", tone="bad")
    tone = "good" if line.status == "complete" else "bad"
    return Field(text=line.status, remark="no seal" if seal == "none" else "", tone=tone)


def _checks(line: Line) -> Field:
    names = ", ".join(name.replace("_", " ") for name in line.failed)
    count = len(line.failed)
    return Field(text=str(count), key=str(count), remark=names, tone="bad" if count else "")


def _figures(line: Line) -> Field:
    if not line.figures:
        return Field(text=MISSING)
    first, *others = line.figures
    return Field(
        text=quantity(first.value, first.unit),
        key="" if first.value is None else repr(first.value),
        remark=", ".join(
            [
                label(first.name, first.unit),
                *(f"{label(o.name, o.unit)} {quantity(o.value, o.unit)}" for o in others),
            ]
        ),
    )


def _energy(line: Line) -> Field:
    energy = line.energy
    if energy is None:
        return Field(text=MISSING, remark="no timed phase was finished")
    text = energy_text(energy)
    value = energy.energy_j if energy.energy_j is not None else energy.upper_j
    return Field(
        text=text,
        key="" if value is None else repr(value),
        remark=energy.reason.partition(";")[0] if text == MISSING else energy.words,
        tone="" if energy.ranks else "quiet",
    )
